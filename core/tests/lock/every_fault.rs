//! Every single fault at every call that the life of a lease makes: enumerated, not sampled.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;

use leasehold_conformance::{Fault, Operation, Plan};
use leasehold_core::fence::FencingToken;
use leasehold_core::lock::{Attempt, Lease, Locks, Stats};
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use crate::support::{RESOURCE, Rig};

const TTL: Duration = Duration::from_millis(1_000);

const FAULTS: [Fault; 10] = [
    Fault::Refuse,
    Fault::LoseAnswer,
    Fault::DelayRequest(Duration::from_millis(250)),
    Fault::DelayRequest(Duration::from_millis(2_000)),
    Fault::DelayAnswer(Duration::from_millis(250)),
    Fault::DelayAnswer(Duration::from_millis(2_000)),
    Fault::ApplyLate(Duration::from_millis(250)),
    Fault::ApplyLate(Duration::from_millis(2_000)),
    Fault::Hang,
    Fault::ApplyAndHang,
];

/// The calls of a life, and how many of each it makes at least.
const CALLS: [(Operation, u32); 5] = [
    (Operation::TryAdd, 3),
    (Operation::Watch, 1),
    (Operation::TryExpire, 5),
    (Operation::TryRemove, 1),
    (Operation::TryReplace, 1),
];

/// How a life ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Release,
    Drop,
    ReleaseForLater,
    /// The acquisition is dropped while it waits for its turn.
    CancelAcquire,
}

const ENDS: [End; 4] = [End::Release, End::Drop, End::ReleaseForLater, End::CancelAcquire];

#[tokio::test(start_paused = true)]
async fn no_single_fault_makes_two_holders_a_falling_token_or_a_leftover() {
    let mut reached = 0;
    for end in ENDS {
        for (operation, calls) in CALLS {
            for nth in 1..=calls {
                for fault in FAULTS {
                    let rig = Rig::with_plan(Plan::none().nth(operation, nth, fault));
                    let case = format!("{end:?}, {operation} {nth}: {fault:?}");
                    LocalSet::new().run_until(live(&rig, end, &case)).await;
                    reached += u32::from(rig.link.calls(operation) >= nth);
                    nothing_is_left(&rig, &case).await;
                }
            }
        }
    }
    // Some ends make fewer calls than others; a plan that never bites would prove nothing.
    assert!(reached > 250, "only {reached} of the faults were met");
}

/// What the rival and A have seen, in the order of their holds.
#[derive(Default)]
struct Seen {
    /// A's lease, while it has one.
    lease: Weak<Lease>,
    last: Option<FencingToken>,
}

impl Seen {
    fn note(&mut self, lease: &Lease, case: &str) {
        let token = lease.fencing_token();
        assert!(token > self.last, "{case}: {token:?} came after {:?}", self.last);
        self.last = token;
    }
}

/// A waits for a lease that B holds, holds it over several renewals, and lets go of it, beside a rival who tries all the
/// while.
async fn live(rig: &Rig, end: End, case: &str) {
    let seen = Rc::new(RefCell::new(Seen::default()));
    let held = rig.b.lock(RESOURCE).ttl(TTL).acquire().await.unwrap();
    seen.borrow_mut().note(&held, case);
    let releasing = tokio::task::spawn_local(async move {
        sleep(TTL / 3).await;
        held.release().await.unwrap()
    });
    let rival = tokio::task::spawn_local(compete(rig.b.clone(), seen.clone(), case.to_owned()));

    let patience = if matches!(end, End::CancelAcquire) { TTL / 4 } else { TTL * 10 };
    let request = rig.a.lock(RESOURCE).ttl(TTL).wait(TTL * 3).acquire();
    if let Ok(Ok(lease)) = timeout(patience, request).await {
        let lease = Rc::new(lease);
        seen.borrow_mut().note(&lease, case);
        seen.borrow_mut().lease = Rc::downgrade(&lease);
        sleep(TTL).await;
        let _ = timeout(TTL, lease.renew()).await;
        sleep(TTL / 2).await;
        let lease = Rc::into_inner(lease).expect("the rival only looks at it");
        match end {
            End::Release => drop(timeout(TTL * 3, lease.release()).await),
            End::ReleaseForLater => drop(timeout(TTL * 3, lease.release_no_sooner_than(TTL * 4)).await),
            End::Drop | End::CancelAcquire => drop(lease),
        }
    }
    assert!(releasing.await.is_ok());
    sleep(TTL * 2).await;
    rival.abort();
}

/// Tries again and again; whenever it gets in, A must not believe that it holds the lease.
async fn compete(locks: Locks, seen: Rc<RefCell<Seen>>, case: String) {
    loop {
        if let Attempt::Acquired(lease) = locks.lock(RESOURCE).ttl(TTL).try_acquire().await.unwrap() {
            let mut seen = seen.borrow_mut();
            let alone = seen.lease.upgrade().is_none_or(|other| other.check().is_err());
            assert!(alone, "{case}: two hold it at once");
            seen.note(&lease, &case);
        }
        sleep(TTL / 25).await;
    }
}

async fn nothing_is_left(rig: &Rig, case: &str) {
    // Every doubt is settled within the ttl, what a transport holds back, and the pause between two tries.
    timeout(Duration::from_secs(70), rig.a.close()).await.unwrap_or_else(|_| panic!("{case}: not settled"));
    rig.b.close().await;
    sleep(TTL * 5).await;
    assert!(rig.is_free().await, "{case}: something is left");
    assert_eq!((rig.a.stats(), rig.b.stats()), (Stats::default(), Stats::default()), "{case}");
}
