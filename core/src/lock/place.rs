use std::time::SystemTime;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::clock::Moment;
use crate::error::{Effect, Error, ErrorKind};
use crate::fence::FencingToken;
use crate::lock::hold::{Grant, Hold};
use crate::lock::lease::Lease;
use crate::lock::locks::Locks;
use crate::lock::reclaim::Doubt;
use crate::lock::record::Nonce;
use crate::lock::term::{Plan, Term};
use crate::store::{AddOutcome, Entry, Key, ReplaceOutcome, Revision};

/// What is written to hold a key: no two are the same.
pub(crate) struct Bid {
    pub(crate) nonce: Nonce,
    pub(crate) value: Bytes,
    pub(crate) since: SystemTime,
}

/// What became of one try to hold a key.
pub(crate) enum Placed {
    /// It is held.
    Ours(Lease),
    /// Something else is there.
    Theirs(Entry),
}

/// A key to be held, and on which terms.
pub(crate) struct Place<'a> {
    pub(crate) locks: &'a Locks,
    pub(crate) key: &'a Key,
    /// What a loss of it is called.
    pub(crate) resource: &'a Key,
    pub(crate) plan: Plan,
    /// Whether what is stored says more than who holds it, so that it is left there when the lease is lost.
    pub(crate) outlives_loss: bool,
    /// What to call it in errors.
    pub(crate) operation: &'static str,
}

impl Place<'_> {
    /// Places a bid, and waits for the answer until `limit`, but no longer than a grant would be worth anything. A bid
    /// whose outcome is unknown is sent up to `sendings` times in all, as its value tells ours from any other.
    ///
    /// Dropped midway, or after an error of unknown effect, what may have been placed is reclaimed.
    pub(crate) async fn bid(
        &self,
        bid: impl Fn() -> Bid,
        sent: Moment,
        limit: Option<Instant>,
        sendings: u32,
    ) -> Result<Placed, Error> {
        let Self { locks, key, plan, operation, .. } = *self;
        let mine = bid();
        let worthless = sent.instant() + plan.valid_for;
        let patience = limit;
        let limit = limit.map_or(worthless, |limit| worthless.min(limit));
        let mut doubt = Doubt::about(locks, key, mine.value.clone(), plan.ttl);
        let mut sending = 1;
        loop {
            let share =
                if sending < sendings { sent.instant() + plan.valid_for / sendings * sending } else { worthless };
            let answer = locks.store().try_add(key, mine.value.clone(), plan.ttl);
            match locks.answered_by(limit.min(share), operation, answer).await {
                Ok(AddOutcome::Added(revision)) => return self.granted(mine, sent, revision, doubt, sending > 1),
                Ok(AddOutcome::Exists(entry)) if entry.value == mine.value => {
                    // The first sending was the grant and this the one that met it; one between may still land.
                    // In a box, as it is rare, and every bid would have to carry it.
                    return Box::pin(self.adopt(&mine, bid(), doubt, sending > 2, patience)).await;
                }
                Ok(AddOutcome::Exists(entry)) => {
                    // An earlier sending may still land, once what is there has gone.
                    if sending == 1 {
                        drop(doubt.resolve());
                    }
                    return Ok(Placed::Theirs(entry));
                }
                Err(error) if error.effect() == Effect::Unknown && sending < sendings && Instant::now() < limit => {
                    tracing::debug!(%key, %error, "a bid of unknown outcome is sent again");
                    sending += 1;
                    doubt.sent_again();
                }
                // Of an earlier sending nothing is known all the same.
                Err(error) if sending > 1 => return Err(error.with_effect(Effect::Unknown)),
                Err(error) => {
                    if error.effect() == Effect::None {
                        drop(doubt.resolve());
                    }
                    return Err(error);
                }
            }
        }
    }

    fn granted(
        &self,
        bid: Bid,
        sent: Moment,
        revision: Revision,
        doubt: Doubt<'_>,
        may_land_again: bool,
    ) -> Result<Placed, Error> {
        let Self { locks, key, resource, plan, outlives_loss, operation } = *self;
        let now = locks.now();
        let Some(term) = Term::granted(plan, sent, now) else {
            doubt.give_back();
            let message = "the grant came when it was over, and is given back";
            return Err(Error::new(ErrorKind::Timeout, operation, message).with_store(locks.store().name()));
        };
        let runtime = doubt.resolve().unwrap_or_else(Handle::current);
        let Bid { nonce, value, since } = bid;
        let hold = Hold::new(Grant {
            locks: locks.clone(),
            key: key.clone(),
            resource: resource.clone(),
            nonce,
            value,
            token: locks.gives_fencing_tokens().then(|| FencingToken::from(revision)),
            plan,
            may_land_again,
            outlives_loss,
            sent,
            since,
            runtime,
            term,
            now,
        });
        Ok(Placed::Ours(Lease::new(hold)))
    }

    /// Our own value is there already: the request was sent twice. The first sending was the grant, and its token never
    /// reached us, so the lease starts anew under a fresh nonce.
    async fn adopt(
        &self,
        mine: &Bid,
        fresh: Bid,
        doubt: Doubt<'_>,
        may_land_again: bool,
        limit: Option<Instant>,
    ) -> Result<Placed, Error> {
        let Self { locks, key, plan, operation, .. } = *self;
        let sent = locks.now();
        let renewed_doubt = Doubt::about(locks, key, fresh.value.clone(), plan.ttl);
        let answer = locks.store().try_replace(key, &mine.value, fresh.value.clone(), plan.ttl);
        let worthless = sent.instant() + plan.valid_for;
        match locks.answered_by(limit.map_or(worthless, |limit| worthless.min(limit)), operation, answer).await {
            Ok(ReplaceOutcome::Applied(revision)) => {
                if may_land_again {
                    drop(doubt);
                } else {
                    drop(doubt.resolve());
                }
                self.granted(fresh, sent, revision, renewed_doubt, false)
            }
            // It has ended meanwhile. Whoever is there now is not known, and neither value is ours to keep.
            Ok(ReplaceOutcome::NotApplied) => {
                drop(renewed_doubt.resolve());
                Err(Error::new(ErrorKind::Timeout, operation, "the grant was over before it was known")
                    .with_store(locks.store().name()))
            }
            Err(error) => {
                if error.effect() == Effect::None {
                    drop(renewed_doubt.resolve());
                }
                Err(error)
            }
        }
    }
}
