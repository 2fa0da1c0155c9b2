use std::time::Duration;

use clap::ValueEnum;
use leasehold::lock::Renewal;
use serde::{Deserialize, Serialize};

/// What the workers do with the lease, and what it is to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scenario {
    /// The critical section is shorter than the lease: nobody is ever in together with another
    Mutex,
    /// Longer than the lease, which nobody renews: two are in at once, and the fence refuses the late one
    Expiry,
    /// Longer than the lease, which renews itself: again nobody is in together with another
    Renew,
}

impl Scenario {
    /// All, in the order in which they run and tell the story.
    pub(crate) const ALL: [Self; 3] = [Self::Mutex, Self::Expiry, Self::Renew];

    /// As it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Expiry => "expiry",
            Self::Renew => "renew",
        }
    }

    /// How long the lease lives without a renewal, unless chosen.
    pub(crate) fn default_ttl(self) -> Duration {
        Duration::from_millis(match self {
            Self::Mutex => 2000,
            Self::Expiry | Self::Renew => 200,
        })
    }

    /// How long a worker stays in, unless chosen.
    pub(crate) fn default_hold(self) -> Duration {
        Duration::from_millis(match self {
            Self::Mutex => 0,
            Self::Expiry => 300,
            Self::Renew => 500,
        })
    }

    /// Who renews the lease.
    pub(crate) fn renewal(self) -> Renewal {
        match self {
            Self::Mutex | Self::Renew => Renewal::Auto,
            Self::Expiry => Renewal::Off,
        }
    }

    /// Whether a worker stops when its lease is lost. In `expiry` it goes on, as a process would that was stopped in
    /// the middle of its work and knows nothing of it.
    pub(crate) fn stops_when_lost(self) -> bool {
        self != Self::Expiry
    }

    /// Whether two workers that are in at once are a failure.
    pub(crate) fn forbids_overlap(self) -> bool {
        self != Self::Expiry
    }
}

/// One contest, with every option decided.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) workers: usize,
    /// How long they fight.
    pub(crate) length: Duration,
    /// How long the lease lives without a renewal.
    pub(crate) ttl: Duration,
    /// How long a worker stays in; zero for entry and exit alone.
    pub(crate) hold: Duration,
}
