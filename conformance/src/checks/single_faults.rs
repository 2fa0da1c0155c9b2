//! Every single fault at every call of a life: enumerated, not sampled. What is built on a store has to survive each, with
//! the store under test behind the link that fails.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use leasehold_core::{AtomicStore, Key, Ttl};
use tokio::time::{Instant, sleep, timeout};

use crate::faulty::{Fault, Faulty, Operation, Plan};
use crate::subject::{Subject, key, millis};
use crate::timing::Round;
use crate::verdict::{Stop, Verdict};

/// A life behind a link that fails once.
pub(super) struct Life {
    /// Where the fault happens.
    pub(super) link: Faulty<Arc<dyn AtomicStore>>,
    pub(super) key: Key,
    /// How long what is held lives without a renewal.
    pub(super) ttl: Ttl,
    operation: Operation,
    nth: u32,
    fault: Fault,
}

impl Life {
    /// Some part of the ttl: so many tenths.
    pub(super) fn tenths(&self, tenths: u32) -> Duration {
        self.ttl.as_duration() * tenths / 10
    }

    /// How long a request may be on its way after it was given up.
    pub(super) fn longest_journey(&self) -> Duration {
        self.tenths(20)
    }

    /// Waits for a call as a client does that gives up at some time, which is when it drops it.
    pub(super) async fn patiently<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        timeout(self.tenths(20), call).await.ok()
    }

    /// Waits until what was still on its way has surely landed.
    pub(super) async fn after_late_requests(&self) {
        if matches!(self.fault, Fault::ApplyLate(_) | Fault::DelayRequest(_)) {
            sleep(self.longest_journey()).await;
        }
    }

    fn met_its_fault(&self) -> bool {
        self.link.calls(self.operation) >= self.nth
    }
}

/// Lives a life for each of its calls, up to so many of an operation, with each fault. The lives that were too slow to
/// judge by are repeated with twice the ttl, and then once more.
pub(super) async fn under_every_single_fault<V: Copy + Debug>(
    subject: &Subject,
    calls: &[(Operation, u32)],
    variants: &[V],
    live: impl AsyncFn(&Life, V) -> Verdict<Round>,
) -> Verdict {
    const SHORTEST: u64 = 800;
    let has_hints = subject.store.capabilities().hints;
    let mut cases = Vec::new();
    for &variant in variants {
        for &(operation, times) in calls.iter().filter(|(operation, _)| has_hints || *operation != Operation::Watch) {
            for nth in 1..=times {
                cases.extend((0..faults(millis(SHORTEST)).len()).map(|fault| (variant, operation, nth, fault)));
            }
        }
    }
    let most_at_once = most_at_once(subject, millis(SHORTEST)).await?;
    let mut last = String::new();
    for doubled in 0..=2 {
        let ttl = millis(SHORTEST << doubled);
        let (live, count) = (&live, most_at_once.min(cases.len()) as u32);
        // Those that begin together begin one after the other, so that they are not all about to do the same.
        let lives = (0..).zip(cases).map(|(number, case)| async move {
            let (variant, operation, nth, fault) = case;
            let fault = faults(ttl)[fault];
            let described = format!("{variant:?}, {operation} {nth}: {fault:?}");
            let link = Faulty::new(subject.store.atomic());
            link.follow(Plan::none().nth(operation, nth, fault));
            // A life that was too slow to judge by may have left something.
            let key = key(&format!("{described}, {ttl:?}").replace(' ', "-"));
            sleep(ttl.as_duration() * (number % count) / count).await;
            let life = Life { link, key, ttl, operation, nth, fault };
            match live(&life, variant).await {
                // A fault that was never met proves nothing.
                Ok(Round::Decided) if life.met_its_fault() => Ok(None),
                Ok(_) => Ok(Some((case, described))),
                Err(Stop::Failed(reason)) => Stop::failed(format!("{described}: {reason}")),
                Err(ignored) => Err(ignored),
            }
        });
        let lives = stream::iter(lives).buffer_unordered(most_at_once);
        let undecided: Vec<_> = lives.try_filter_map(async |undecided| Ok(undecided)).try_collect().await?;
        let described;
        (cases, described) = undecided.into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
        let Some(of_these) = described.into_iter().next_back() else { return Ok(()) };
        last = of_these;
        if subject.stepped {
            // No machine is too slow for stepped time.
            break;
        }
    }
    Stop::failed(format!("undecided: {} lives were too slow to judge by, such as {last}", cases.len()))
}

/// How many lives of this ttl the store can take at once, and half as much of something else beside them.
async fn most_at_once(subject: &Subject, ttl: Ttl) -> Verdict<usize> {
    const WRITES: usize = 64;
    const FEWEST: usize = 16;
    /// Of a life within a ttl, its rival's included.
    const CALLS: f64 = 10.0;
    let began = Instant::now();
    subject
        .at_once(WRITES, |number| {
            let store = subject.store.clone();
            async move {
                // As long as a record.
                let _ = store.try_add(&key(&format!("probe-{number}")), vec![b'p'; 100].into(), ttl).await?;
                Ok(())
            }
        })
        .await?;
    let lives = WRITES as f64 * ttl.as_duration().as_secs_f64() / began.elapsed().as_secs_f64() / CALLS / 1.5;
    // On stepped time it took no time.
    Ok(if lives.is_finite() { (lives as usize).max(FEWEST) } else { 10_000 })
}

/// The same kinds in the same order for every ttl.
fn faults(ttl: Ttl) -> [Fault; 8] {
    let (short, long) = (ttl.as_duration() / 4, ttl.as_duration() * 3 / 2);
    [
        Fault::Refuse,
        Fault::LoseAnswer,
        Fault::DelayRequest(long),
        Fault::DelayAnswer(long),
        Fault::ApplyLate(short),
        Fault::ApplyLate(long),
        Fault::Hang,
        Fault::ApplyAndHang,
    ]
}
