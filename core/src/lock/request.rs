use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::lock::locks::Locks;
use crate::lock::owner::Owner;
use crate::lock::term::{Plan, validity};
use crate::store::{Key, Ttl};

/// Whether a lease renews itself while it is held. This enum is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Renewal {
    /// At a third of the ttl.
    #[default]
    Auto,
    /// At this interval: above zero, and below the time that a grant is trusted (the ttl less 1% and 2 ms).
    Every(Duration),
    /// Not by itself; [`Lease::renew`](crate::lock::Lease::renew) does it by hand.
    Off,
}

/// A lease to be acquired: what [`Locks::lock`] gives.
///
/// | option | default |
/// |---|---|
/// | [`ttl`](Self::ttl) | 30 s |
/// | [`wait`](Self::wait) | 30 s |
/// | [`renewal`](Self::renewal) | `Renewal::Auto` |
/// | [`max_hold`](Self::max_hold), [`max_renewals`](Self::max_renewals) | no bound |
/// | [`owner`](Self::owner) | nobody's, with the label `host:pid` |
///
/// Everything is checked when the lease is acquired, before anything is sent.
#[derive(Debug)]
#[must_use = "nothing is acquired before `acquire`, `try_acquire` or `run`"]
pub struct LockRequest {
    pub(super) locks: Locks,
    resource: Result<Key, Error>,
    ttl: Duration,
    wait: Duration,
    renewal: Renewal,
    max_hold: Option<Duration>,
    max_renewals: Option<u32>,
    owner: Option<Owner>,
    fencing_required: bool,
}

/// A request that is known to be valid.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) key: Key,
    pub(super) resource: Key,
    pub(super) plan: Plan,
    pub(super) wait: Duration,
    pub(super) owner: Option<Owner>,
}

impl LockRequest {
    pub(super) fn new(locks: Locks, resource: Result<Key, Error>) -> Self {
        Self {
            locks,
            resource,
            ttl: Duration::from_secs(30),
            wait: Duration::from_secs(30),
            renewal: Renewal::Auto,
            max_hold: None,
            max_renewals: None,
            owner: None,
            fencing_required: false,
        }
    }

    /// How long the lease lives without a renewal: how long others wait after this process has died. It is fixed for
    /// the life of the lease.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait while somebody else holds it. Zero makes exactly one try.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = limit;
        self
    }

    /// Whether the lease renews itself.
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.renewal = renewal;
        self
    }

    /// The longest hold: then renewal has stopped and the lease counts as lost, though the work still hangs.
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// The most renewals, by itself and by hand.
    pub fn max_renewals(mut self, most: u32) -> Self {
        self.max_renewals = Some(most);
        self
    }

    /// Who acquires: a label for others to see, or an [`Owner`] whose holds are re-entrant.
    pub fn owner(mut self, owner: impl Into<Owner>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Refuses a store that cannot give fencing tokens, before anything is sent.
    pub fn require_fencing(mut self) -> Self {
        self.fencing_required = true;
        self
    }

    pub(super) fn into_terms(self) -> Result<(Locks, Terms), Error> {
        let Self { locks, resource, ttl, wait, renewal, max_hold, max_renewals, owner, fencing_required } = self;
        let resource = resource?;
        let key = locks.key_of(&resource)?;
        let plan = plan("acquire", ttl, renewal, max_hold, max_renewals)?;
        if let Some(owner) = &owner {
            owner.check()?;
        }
        if fencing_required && !locks.gives_fencing_tokens() {
            let message = "this store mints no revisions, so it cannot give the fencing token that was asked for";
            return Err(Error::new(ErrorKind::Unsupported, "acquire", message).with_store(locks.store().name()));
        }
        Ok((locks, Terms { key, resource, plan, wait, owner }))
    }
}

/// What is agreed for a lease, if it can be.
pub(crate) fn plan(
    operation: &'static str,
    ttl: Duration,
    renewal: Renewal,
    max_hold: Option<Duration>,
    max_renewals: Option<u32>,
) -> Result<Plan, Error> {
    let invalid = |message: String| Err(Error::new(ErrorKind::InvalidInput, operation, message));
    let ttl = Ttl::try_from(ttl)?;
    let Some(valid_for) = validity(ttl) else {
        return invalid(format!(
            "a lease's ttl must be longer than its drift margin of 1% and 2 ms, and {ttl:?} is not"
        ));
    };
    let renew_after = match renewal {
        Renewal::Auto => Some(ttl.as_duration() / 3),
        Renewal::Every(interval) if interval.is_zero() || interval >= valid_for => {
            return invalid(format!(
                "a renewal interval must be above zero and below {valid_for:?} (the ttl less its drift margin), and \
                 {interval:?} is not"
            ));
        }
        Renewal::Every(interval) => Some(interval),
        Renewal::Off => None,
    };
    if max_hold.is_some_and(|limit| limit.is_zero()) {
        return invalid("the longest hold must be above zero, and 0ns is not".to_owned());
    }
    Ok(Plan { ttl, valid_for, renew_after, max_hold, max_renewals })
}
