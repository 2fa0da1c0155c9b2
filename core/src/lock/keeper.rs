use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::Moment;
use crate::error::ErrorKind;
use crate::lock::hold::Hold;
use crate::lock::locks::Locks;
use crate::lock::term::Due;

/// Looks after the leases that renew themselves or whose end somebody listens for.
///
/// One task serves all of them: it sleeps until the next is due, spawns a task for a renewal (so that one that hangs
/// delays no other) and finds out about ends. It starts with the first lease and ends soon after the last.
#[derive(Default)]
pub(super) struct Keeper {
    agenda: Mutex<Agenda>,
    /// The alarm was moved.
    moved: Notify,
}

#[derive(Default)]
struct Agenda {
    by_time: BTreeMap<(Instant, HoldId), Arc<Hold>>,
    /// When the task wakes; nothing while there is no task.
    alarm: Option<Instant>,
}

/// The address of a hold: nobody else has it while the agenda keeps the hold.
type HoldId = usize;

impl Keeper {
    /// How long the task outlives the last lease. In a loop that acquires and releases, it is then neither started nor
    /// woken by each round.
    const LINGER: Duration = Duration::from_millis(50);
    /// A gap between the clocks below this is their reading one after the other, and no suspend.
    const SUSPENDED: Duration = Duration::from_millis(10);

    /// How many leases it looks after.
    pub(super) fn len(&self) -> usize {
        self.agenda().by_time.len()
    }

    /// Does what is due about a lease now, and comes back to it when something will be.
    pub(super) fn attend(&self, hold: &Arc<Hold>, now: Moment) {
        loop {
            match hold.due(now) {
                Due::Renewal => {
                    let renewal = hold.runtime.spawn(renew(hold.clone()));
                    hold.renewal_started(renewal.abort_handle());
                }
                Due::Later(at) => return self.schedule(hold, at.instant()),
                Due::Over => return self.forget(hold),
            }
        }
    }

    /// Drops a lease that is over.
    pub(super) fn forget(&self, hold: &Arc<Hold>) {
        let mut agenda = self.agenda();
        let Some(at) = hold.noted().take() else { return };
        agenda.by_time.remove(&(at, id_of(hold)));
        if agenda.by_time.is_empty() {
            let soon = Instant::now() + Self::LINGER;
            self.move_alarm(&mut agenda, soon);
        }
    }

    fn schedule(&self, hold: &Arc<Hold>, at: Instant) {
        let mut agenda = self.agenda();
        // Marked before the look: a release that this look does not see yet sees the mark, and has it forgotten.
        hold.watched();
        if hold.is_over() {
            return;
        }
        let id = id_of(hold);
        let mut noted = hold.noted();
        match *noted {
            // Two may attend to one lease at once, and the later to come here may know less. To come too early is no
            // harm.
            Some(sooner) if sooner <= at => return,
            Some(later) => {
                agenda.by_time.remove(&(later, id));
            }
            None => {}
        }
        *noted = Some(at);
        drop(noted);
        agenda.by_time.insert((at, id), hold.clone());
        if agenda.alarm.is_none() {
            agenda.alarm = Some(at);
            hold.runtime.spawn(keep(hold.locks.clone()));
        } else {
            self.move_alarm(&mut agenda, at);
        }
    }

    /// Has the task wake at `at`, unless it wakes sooner.
    fn move_alarm(&self, agenda: &mut Agenda, at: Instant) {
        if agenda.alarm.is_some_and(|alarm| at < alarm) {
            agenda.alarm = Some(at);
            self.moved.notify_one();
        }
    }

    /// Takes out the leases that are due by `now`.
    fn take_due(&self, now: Instant) -> Vec<Arc<Hold>> {
        let mut agenda = self.agenda();
        let later = agenda.by_time.split_off(&(now, HoldId::MAX));
        let due = mem::replace(&mut agenda.by_time, later);
        taken_out(due)
    }

    /// Takes out all leases.
    fn take_all(&self) -> Vec<Arc<Hold>> {
        let mut agenda = self.agenda();
        taken_out(mem::take(&mut agenda.by_time))
    }

    // Nothing panics under this lock.
    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those that are on the agenda no more. Called while it is locked.
fn taken_out(entries: BTreeMap<(Instant, HoldId), Arc<Hold>>) -> Vec<Arc<Hold>> {
    entries.into_values().inspect(|hold| *hold.noted() = None).collect()
}

fn id_of(hold: &Arc<Hold>) -> HoldId {
    Arc::as_ptr(hold).addr()
}

/// The task that serves all leases of one `Locks`.
async fn keep(locks: Locks) {
    let keeper = &locks.0.keeper;
    // A runtime that shuts down drops the task here and there; the next lease must find that there is none.
    let _stopped = OnDrop(|| keeper.agenda().alarm = None);
    let mut looked_at = locks.now();
    let mut lingered = false;
    loop {
        let now = locks.now();
        let suspended = now.asleep_since(looked_at) > Keeper::SUSPENDED;
        looked_at = now;
        let due = if suspended { keeper.take_all() } else { keeper.take_due(now.instant()) };
        for hold in due {
            keeper.attend(&hold, now);
        }
        let alarm = {
            let mut agenda = keeper.agenda();
            let first = agenda.by_time.first_key_value().map(|(&(at, _), _)| at);
            if first.is_none() && lingered {
                agenda.alarm = None;
                return;
            }
            lingered = first.is_none();
            *agenda.alarm.insert(first.unwrap_or_else(|| now.instant() + Keeper::LINGER))
        };
        // A wake-up by the alarm alone says that it was quiet for so long; one by a moved alarm says nothing.
        lingered &= tokio::time::timeout_at(now.look_again_by(alarm), keeper.moved.notified()).await.is_err();
    }
}

/// One renewal. A store that panics or hangs here stops this task alone, and the lease ends at its deadline.
async fn renew(hold: Arc<Hold>) {
    if let Err(error) = hold.renew().await
        && error.kind() != ErrorKind::Lost
    {
        hold.renewal_failed(&error);
    }
    hold.locks.0.keeper.attend(&hold, hold.locks.now());
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
