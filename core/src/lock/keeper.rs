use std::collections::BTreeMap;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, Id as RuntimeId};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::Moment;
use crate::error::ErrorKind;
use crate::lock::hold::Hold;
use crate::lock::locks::Locks;
use crate::lock::term::Due;

/// Looks after the leases that renew themselves or whose end somebody listens for.
///
/// One task serves all those of one runtime: it sleeps until the next is due, spawns a task for a renewal (so that one
/// that hangs delays no other) and finds out about ends. It starts with the first lease and ends soon after the last.
///
/// No lease rests on the runtime of another, which may end first, or be driven by nobody for a while. Those whose own
/// runtime ends go over to one that is left.
#[derive(Default)]
pub(super) struct Keeper {
    agenda: Mutex<Agenda>,
}

#[derive(Default)]
struct Agenda {
    /// One for each runtime that serves some: a list, as there are few. Each has its task, or is just about to.
    rotas: Vec<Rota>,
    /// Those whose runtime has ended when there was no other: the next one takes them over.
    left_behind: Entries,
}

/// What one task serves.
struct Rota {
    runtime: RuntimeId,
    entries: Entries,
    /// When the task wakes.
    alarm: Instant,
    /// The alarm was moved.
    moved: Arc<Notify>,
}

type Entries = BTreeMap<(Instant, HoldId), Arc<Hold>>;

/// The address of a hold: nobody else has it while the agenda keeps the hold.
type HoldId = usize;

/// Where on the agenda a hold is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Noted {
    at: Instant,
    /// Nothing for one that was left behind.
    on: Option<RuntimeId>,
}

impl Keeper {
    /// How long the task outlives the last lease. In a loop that acquires and releases, it is then neither started nor
    /// woken by each round.
    const LINGER: Duration = Duration::from_millis(50);
    /// A gap between the clocks below this is their reading one after the other, and no suspend.
    const SUSPENDED: Duration = Duration::from_millis(10);

    /// How many leases it looks after.
    pub(super) fn len(&self) -> usize {
        let Agenda { rotas, left_behind } = &*self.agenda();
        rotas.iter().map(|rota| rota.entries.len()).sum::<usize>() + left_behind.len()
    }

    /// Does what is due about a lease now, and comes back to it on `runtime` when something will be.
    pub(super) fn attend(&self, hold: &Arc<Hold>, runtime: &Handle, now: Moment) {
        loop {
            match hold.due(now) {
                Due::Renewal => {
                    let renewal = Renewing { hold: hold.clone(), again: hold.renew_again_at(now), is_over: false };
                    let renewal = runtime.spawn(renew(renewal));
                    hold.renewal_started(renewal.abort_handle());
                }
                Due::Later(at) => return self.schedule(hold, runtime, at.instant()),
                Due::Over => return self.forget(hold),
            }
        }
    }

    /// Drops a lease that is over.
    pub(super) fn forget(&self, hold: &Arc<Hold>) {
        let mut agenda = self.agenda();
        let Some(noted) = hold.noted().take() else { return };
        agenda.remove(hold, noted);
        let rota = noted.on.and_then(|runtime| agenda.of(runtime));
        if let Some(rota) = rota.filter(|rota| rota.entries.is_empty()) {
            rota.wake_by(Instant::now() + Self::LINGER);
        }
    }

    fn schedule(&self, hold: &Arc<Hold>, runtime: &Handle, at: Instant) {
        let mut agenda = self.agenda();
        // Marked before the look: a release that this look does not see yet sees the mark, and has it forgotten.
        hold.watched();
        if hold.is_over() {
            return;
        }
        let noted = *hold.noted();
        match noted {
            // Two may attend to one lease at once, and the later to come here may know less. To come too early is no
            // harm.
            Some(Noted { at: sooner, on: Some(_) }) if sooner <= at => return,
            Some(noted) => agenda.remove(hold, noted),
            None => {}
        }
        *hold.noted() = Some(Noted { at, on: Some(runtime.id()) });
        let (rota, is_new) = agenda.rota(runtime.id(), at);
        rota.entries.insert((at, id_of(hold)), hold.clone());
        rota.wake_by(at);
        let post = is_new.then(|| Post::new(&hold.locks, runtime, rota));
        agenda.take_over(runtime.id());
        drop(agenda);
        if let Some(post) = post {
            post.spawn(runtime);
        }
    }

    /// Has the leases of a task that has ended served by another.
    fn hand_over(&self, locks: &Locks, ended: RuntimeId) {
        let mut agenda = self.agenda();
        let Some(mut rota) = agenda.take(ended) else { return };
        for hold in rota.entries.values() {
            if let Some(noted) = &mut *hold.noted() {
                noted.on = None;
            }
        }
        agenda.left_behind.append(&mut rota.entries);
        let Some((&(first, _), _)) = agenda.left_behind.first_key_value() else { return };
        // The one that wakes last: a runtime that nobody drives just now has its alarm behind it.
        let other = agenda.rotas.iter().max_by_key(|rota| rota.alarm).map(|rota| rota.runtime);
        if let Some(other) = other {
            agenda.take_over(other);
        } else if let Ok(runtime) = Handle::try_current()
            && runtime.id() != ended
        {
            let (rota, _) = agenda.rota(runtime.id(), first);
            let post = Post::new(locks, &runtime, rota);
            agenda.take_over(runtime.id());
            drop(agenda);
            post.spawn(&runtime);
        }
    }

    /// Takes out the leases that a runtime has due by `now`.
    fn take_due(&self, runtime: RuntimeId, now: Instant) -> Vec<Arc<Hold>> {
        let mut agenda = self.agenda();
        let Some(rota) = agenda.of(runtime) else { return Vec::new() };
        let later = rota.entries.split_off(&(now, HoldId::MAX));
        let due = mem::replace(&mut rota.entries, later);
        taken_out(due)
    }

    /// Takes out all leases of a runtime.
    fn take_all(&self, runtime: RuntimeId) -> Vec<Arc<Hold>> {
        let mut agenda = self.agenda();
        let Some(rota) = agenda.of(runtime) else { return Vec::new() };
        taken_out(mem::take(&mut rota.entries))
    }

    // Nothing panics under this lock.
    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Agenda {
    /// What a runtime serves. Says whether it is new, so that its task has to be started.
    fn rota(&mut self, runtime: RuntimeId, alarm: Instant) -> (&mut Rota, bool) {
        let place = self.rotas.iter().position(|rota| rota.runtime == runtime);
        let is_new = place.is_none();
        let place = place.unwrap_or_else(|| {
            self.rotas.push(Rota { runtime, entries: Entries::new(), alarm, moved: Arc::default() });
            self.rotas.len() - 1
        });
        (&mut self.rotas[place], is_new)
    }

    fn of(&mut self, runtime: RuntimeId) -> Option<&mut Rota> {
        self.rotas.iter_mut().find(|rota| rota.runtime == runtime)
    }

    fn take(&mut self, runtime: RuntimeId) -> Option<Rota> {
        let place = self.rotas.iter().position(|rota| rota.runtime == runtime)?;
        Some(self.rotas.swap_remove(place))
    }

    fn remove(&mut self, hold: &Arc<Hold>, Noted { at, on }: Noted) {
        let entries = match on {
            Some(runtime) => self.of(runtime).map(|rota| &mut rota.entries),
            None => Some(&mut self.left_behind),
        };
        if let Some(entries) = entries {
            entries.remove(&(at, id_of(hold)));
        }
    }

    /// Has a runtime serve those that were left behind too.
    fn take_over(&mut self, runtime: RuntimeId) {
        let Some((&(first, _), _)) = self.left_behind.first_key_value() else { return };
        let Some(rota) = self.rotas.iter_mut().find(|rota| rota.runtime == runtime) else { return };
        for hold in self.left_behind.values() {
            if let Some(noted) = &mut *hold.noted() {
                noted.on = Some(runtime);
            }
        }
        rota.entries.append(&mut self.left_behind);
        rota.wake_by(first);
    }
}

impl Rota {
    /// Has the task wake at `at`, unless it wakes sooner.
    fn wake_by(&mut self, at: Instant) {
        if at < self.alarm {
            self.alarm = at;
            self.moved.notify_one();
        }
    }
}

/// Those that are on the agenda no more. Called while it is locked.
fn taken_out(entries: Entries) -> Vec<Arc<Hold>> {
    entries.into_values().inspect(|hold| *hold.noted() = None).collect()
}

fn id_of(hold: &Arc<Hold>) -> HoldId {
    Arc::as_ptr(hold).addr()
}

/// The post of the task that serves a runtime. It is made before the task, which a runtime that has ended, or is about
/// to, drops without a poll: then too the leases have to go to another.
struct Post {
    locks: Locks,
    runtime: RuntimeId,
    moved: Arc<Notify>,
    /// There is nothing left to serve.
    is_over: bool,
}

impl Post {
    fn new(locks: &Locks, runtime: &Handle, rota: &Rota) -> Self {
        Self { locks: locks.clone(), runtime: runtime.id(), moved: rota.moved.clone(), is_over: false }
    }

    /// Called while the agenda is not locked, as the task may be dropped in here.
    fn spawn(self, runtime: &Handle) {
        runtime.spawn(keep(self));
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        if !self.is_over {
            self.locks.0.keeper.hand_over(&self.locks, self.runtime);
        }
    }
}

/// The task that serves the leases of one runtime.
async fn keep(mut post: Post) {
    let (locks, runtime) = (post.locks.clone(), Handle::current());
    let keeper = &locks.0.keeper;
    let mut looked_at = locks.now();
    let mut lingered = false;
    loop {
        let now = locks.now();
        let suspended = now.asleep_since(looked_at) > Keeper::SUSPENDED;
        looked_at = now;
        let due = if suspended { keeper.take_all(post.runtime) } else { keeper.take_due(post.runtime, now.instant()) };
        for hold in due {
            // A recorder of metrics, or a subscriber, that panics about the end of one lease hides no other.
            let _ = catch_unwind(AssertUnwindSafe(|| keeper.attend(&hold, &runtime, now)));
        }
        let alarm = {
            let mut agenda = keeper.agenda();
            let Some(rota) = agenda.of(post.runtime) else { return };
            let first = rota.entries.first_key_value().map(|(&(at, _), _)| at);
            if first.is_none() && lingered {
                agenda.take(post.runtime);
                post.is_over = true;
                return;
            }
            lingered = first.is_none();
            rota.alarm = first.unwrap_or_else(|| now.instant() + Keeper::LINGER);
            rota.alarm
        };
        // A wake-up by the alarm alone says that it was quiet for so long; one by a moved alarm says nothing.
        lingered &= tokio::time::timeout_at(now.look_again_by(alarm), post.moved.notified()).await.is_err();
    }
}

/// A renewal under way. Dropped without an answer (by a store that panics, or a runtime that ends), it is not the last.
struct Renewing {
    hold: Arc<Hold>,
    /// When another may be sent instead.
    again: Moment,
    is_over: bool,
}

impl Drop for Renewing {
    fn drop(&mut self) {
        let Self { hold, again, is_over } = self;
        if !*is_over {
            hold.renewal_dropped(*again);
            hold.locks.0.keeper.schedule(hold, &hold.runtime, again.instant());
        }
    }
}

/// One renewal, in a task of its own.
async fn renew(mut renewing: Renewing) {
    let hold = &renewing.hold;
    if let Err(error) = hold.renew().await
        && error.kind() != ErrorKind::Lost
    {
        hold.renewal_failed(&error);
    }
    hold.locks.0.keeper.attend(hold, &Handle::current(), hold.locks.now());
    renewing.is_over = true;
}
