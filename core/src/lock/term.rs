use std::fmt;
use std::time::Duration;

use crate::clock::Moment;
use crate::error::{Effect, Error, ErrorKind};
use crate::store::{Key, Ttl};

/// A lease that was held and is not any more. It never comes back: an answer of the store that arrives later changes
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    resource: Key,
    reason: LossReason,
}

/// Why a lease was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// Its time ran out before a renewal was confirmed.
    Expired,
    /// The store says that it is not there any more: expired, removed by an operator, or somebody else's by now.
    NotOurs,
    /// It reached its longest hold, or had its last renewal.
    HoldLimit,
}

impl Lost {
    pub(super) fn new(resource: Key, reason: LossReason) -> Self {
        Self { resource, reason }
    }

    /// What the lease was on.
    pub fn resource(&self) -> &Key {
        &self.resource
    }

    /// Why it was lost.
    pub fn reason(&self) -> LossReason {
        self.reason
    }
}

impl LossReason {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::NotOurs => "not_ours",
            Self::HoldLimit => "hold_limit",
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, reason } = self;
        let why = match reason {
            LossReason::Expired => "its time ran out before a renewal was confirmed",
            LossReason::NotOurs => "the store says that it is not ours any more",
            LossReason::HoldLimit => "it was held as long as it may be",
        };
        write!(f, "the lease on {resource} is lost: {why}")
    }
}

impl std::error::Error for Lost {}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Self {
        Self::new(ErrorKind::Lost, "lease", lost.to_string()).with_effect(Effect::None).with_source(lost)
    }
}

/// How long a granted lease may be trusted, counted from before its request was sent: the ttl less what two clocks may
/// drift apart meanwhile, 1% and 2 ms. Nothing when that eats the whole of it.
pub(crate) fn validity(ttl: Ttl) -> Option<Duration> {
    let ttl = ttl.as_duration();
    let margin = ttl / 100 + Duration::from_millis(2);
    ttl.checked_sub(margin).filter(|valid| !valid.is_zero())
}

/// What was agreed for a lease when it was asked for; it does not change while it is held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) ttl: Ttl,
    /// [`validity`] of the ttl.
    pub(crate) valid_for: Duration,
    /// How long after its last grant a lease is renewed; nothing when it is not.
    pub(crate) renew_after: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_renewals: Option<u32>,
}

impl Plan {
    /// How long one renewal may take before it counts as failed. A later answer would leave no time for another.
    pub(super) fn renewal_limit(&self) -> Duration {
        self.valid_for / 3
    }
}

/// The life of one lease, as arithmetic: it reads no clock, asks no store and wakes nobody.
#[derive(Debug)]
pub(super) struct Term {
    plan: Plan,
    valid_until: Moment,
    /// Where no renewal helps any more.
    ends_by: Option<Moment>,
    renewals: u32,
    /// Failed renewals since the last that was confirmed.
    failures: u32,
    /// Nothing while one is under way, and when there is none to come.
    next_renewal: Option<Moment>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Held,
    Lost(LossReason),
    Released,
}

/// What there is to do about a lease now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Send a renewal, and ask again.
    Renewal,
    /// Come back then.
    Later(Moment),
    /// Nothing ever again.
    Over,
}

impl Term {
    /// The term of a lease that was asked for at `sent` and granted, or nothing when the grant came too late.
    pub(super) fn granted(plan: Plan, sent: Moment, now: Moment) -> Option<Self> {
        let mut term = Self {
            plan,
            valid_until: sent,
            ends_by: plan.max_hold.map(|hold| sent.after(hold)),
            renewals: 0,
            failures: 0,
            next_renewal: None,
            state: State::Held,
        };
        term.extend(sent);
        term.valid_until(now).is_ok().then_some(term)
    }

    /// Until when the lease is held, or why it is lost. That it is lost is latched here.
    pub(super) fn valid_until(&mut self, now: Moment) -> Result<Moment, LossReason> {
        match self.state {
            State::Held if now.is_past(self.valid_until) => {
                let at_limit = self.ends_by == Some(self.valid_until) || self.renewals_are_used_up();
                Err(self.lose(if at_limit { LossReason::HoldLimit } else { LossReason::Expired }))
            }
            State::Held => Ok(self.valid_until),
            State::Lost(reason) => Err(reason),
            // Whoever released it has no handle any more to ask with.
            State::Released => Err(LossReason::NotOurs),
        }
    }

    /// What there is to do. A renewal that it names is from then on under way.
    pub(super) fn due(&mut self, now: Moment) -> Due {
        let Ok(valid_until) = self.valid_until(now) else { return Due::Over };
        match self.next_renewal {
            Some(at) if now.is_past(at) => {
                self.next_renewal = None;
                Due::Renewal
            }
            Some(at) => Due::Later(at.min(valid_until)),
            None => Due::Later(valid_until),
        }
    }

    /// Takes note of a renewal that was sent at `sent` and confirmed.
    pub(super) fn renewed(&mut self, sent: Moment, now: Moment) -> Result<(), LossReason> {
        self.valid_until(now)?;
        self.renewals = self.renewals.saturating_add(1);
        self.failures = 0;
        self.extend(sent);
        Ok(())
    }

    /// Takes note of a renewal that the store did not answer, and says how many have failed in a row. The next one
    /// comes after `jitter` (0 to 1) of a delay that doubles.
    pub(super) fn renewal_failed(&mut self, now: Moment, jitter: f64) -> u32 {
        self.failures += 1;
        let longest = self.plan.valid_for / 8;
        let delay = (self.plan.valid_for / 64).saturating_mul(1 << (self.failures - 1).min(10)).min(longest);
        self.next_renewal = Some(now.after(delay.mul_f64(0.5 + jitter / 2.0)));
        self.failures
    }

    /// Takes note of a renewal that was dropped without an answer: the next one comes at `again`.
    pub(super) fn renewal_dropped(&mut self, again: Moment) {
        if self.state == State::Held && self.next_renewal.is_none() {
            self.next_renewal = self.plan.renew_after.filter(|_| self.may_be_renewed()).map(|_| again);
        }
    }

    /// Whether another renewal is allowed.
    pub(super) fn renewals_are_used_up(&self) -> bool {
        self.plan.max_renewals.is_some_and(|most| self.renewals >= most)
    }

    /// Latches that the lease is lost. The first reason stays, and what was released cannot be lost: a renewal that a
    /// release overtook finds nothing there.
    pub(super) fn lose(&mut self, reason: LossReason) -> LossReason {
        match self.state {
            State::Held => {
                self.state = State::Lost(reason);
                self.next_renewal = None;
                reason
            }
            State::Lost(first) => first,
            State::Released => reason,
        }
    }

    /// Ends the lease by the holder's own will. Says whether it had been lost before.
    pub(super) fn release(&mut self, now: Moment) -> Result<(), LossReason> {
        self.valid_until(now)?;
        self.state = State::Released;
        self.next_renewal = None;
        Ok(())
    }

    /// Whether it is held no more, for whichever reason.
    pub(super) fn is_over(&self) -> bool {
        self.state != State::Held
    }

    /// Whether it ended by loss.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost(_))
    }

    fn extend(&mut self, sent: Moment) {
        let reaches = sent.after(self.plan.valid_for);
        let reaches = self.ends_by.map_or(reaches, |ends_by| reaches.min(ends_by));
        // A renewal that was sent earlier and answered later takes nothing away.
        if self.valid_until.until(reaches) > Duration::ZERO {
            self.valid_until = reaches;
        }
        self.next_renewal = self.plan.renew_after.filter(|_| self.may_be_renewed()).map(|after| sent.after(after));
    }

    /// Whether another renewal is allowed, and of use.
    fn may_be_renewed(&self) -> bool {
        self.ends_by != Some(self.valid_until) && !self.renewals_are_used_up()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::*;

    fn plan(ttl: u64) -> Plan {
        let ttl = Ttl::from_millis(ttl).unwrap();
        let valid_for = validity(ttl).unwrap();
        Plan { ttl, valid_for, renew_after: Some(ttl.as_duration() / 3), max_hold: None, max_renewals: None }
    }

    fn clock() -> impl Fn(u64) -> Moment {
        let start = Moment::new(Instant::now());
        move |millis| start.after(Duration::from_millis(millis))
    }

    #[test]
    fn a_ttl_that_the_margin_eats_is_no_lease() {
        assert_eq!(validity(Ttl::from_millis(2).unwrap()), None);
        assert_eq!(validity(Ttl::from_millis(1000).unwrap()), Some(Duration::from_millis(988)));
    }

    #[test]
    fn validity_counts_from_the_send_and_a_late_grant_is_none() {
        let at = clock();
        let mut term = Term::granted(plan(1000), at(0), at(500)).unwrap();
        assert_eq!(term.valid_until(at(987)), Ok(at(988)));
        assert_eq!(term.valid_until(at(988)), Err(LossReason::Expired));
        assert!(Term::granted(plan(1000), at(0), at(988)).is_none());
    }

    #[test]
    fn lost_is_latched() {
        let at = clock();
        let mut term = Term::granted(plan(1000), at(0), at(0)).unwrap();
        assert!(matches!(term.due(at(400)), Due::Renewal));
        assert_eq!(term.valid_until(at(990)), Err(LossReason::Expired));
        assert_eq!(term.renewed(at(400), at(991)), Err(LossReason::Expired));
        assert_eq!(term.valid_until(at(991)), Err(LossReason::Expired));
        assert_eq!(term.due(at(991)), Due::Over);
    }

    #[test]
    fn one_renewal_is_under_way_at_a_time_and_a_failed_one_is_repeated() {
        let at = clock();
        let mut term = Term::granted(plan(3000), at(0), at(0)).unwrap();
        assert_eq!(term.due(at(0)), Due::Later(at(1000)));
        assert!(matches!(term.due(at(1000)), Due::Renewal));
        assert_eq!(term.due(at(1500)), Due::Later(at(2968)));
        assert_eq!(term.renewal_failed(at(1500), 1.0), 1);
        assert!(matches!(term.due(at(1500)), Due::Later(next) if next != at(2968)));
        assert!(matches!(term.due(at(2000)), Due::Renewal));
        assert_eq!(term.renewed(at(2000), at(2100)), Ok(()));
        assert_eq!(term.due(at(2100)), Due::Later(at(3000)));
        assert_eq!(term.valid_until(at(2100)), Ok(at(4968)));
    }

    #[test]
    fn the_longest_hold_ends_it_and_stops_renewal() {
        let at = clock();
        let bounded = Plan { max_hold: Some(Duration::from_millis(1500)), ..plan(1000) };
        let mut term = Term::granted(bounded, at(0), at(0)).unwrap();
        assert!(matches!(term.due(at(600)), Due::Renewal));
        assert_eq!(term.renewed(at(600), at(600)), Ok(()));
        assert_eq!(term.due(at(600)), Due::Later(at(1500)), "no further renewal");
        assert_eq!(term.valid_until(at(1500)), Err(LossReason::HoldLimit));
    }

    #[test]
    fn the_last_renewal_is_the_last() {
        let at = clock();
        let bounded = Plan { max_renewals: Some(1), ..plan(1000) };
        let mut term = Term::granted(bounded, at(0), at(0)).unwrap();
        assert!(matches!(term.due(at(400)), Due::Renewal));
        assert_eq!(term.renewed(at(400), at(400)), Ok(()));
        assert_eq!(term.due(at(400)), Due::Later(at(1388)));
        assert_eq!(term.valid_until(at(1388)), Err(LossReason::HoldLimit));
    }

    proptest! {
        // Whatever the order of answers, a lease is never trusted longer than the last confirmed request allows.
        #[test]
        fn never_trusted_beyond_a_confirmed_send(steps in prop::collection::vec((0u64..400, 0u64..400, any::<bool>()), 1..40)) {
            let at = clock();
            let mut term = Term::granted(plan(1000), at(0), at(0)).unwrap();
            let (mut now, mut last_sent) = (0, 0);
            for (wait, take, confirmed) in steps {
                now += wait;
                let sent = now;
                now += take;
                if !confirmed {
                    term.renewal_failed(at(now), 0.5);
                } else if term.renewed(at(sent), at(now)).is_ok() {
                    last_sent = sent;
                }
                if let Ok(until) = term.valid_until(at(now)) {
                    prop_assert_eq!(until, at(last_sent + 988));
                    prop_assert!(now < last_sent + 988);
                } else {
                    prop_assert!(now >= last_sent + 988);
                }
            }
        }
    }
}
