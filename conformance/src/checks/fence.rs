//! The gate that refuses writes under an older lease, with its values in the store.

use leasehold_core::fence::{Admission, FenceGate, FencePolicy, FencingToken};
use leasehold_core::lock::Locks;

use crate::subject::{Subject, long};
use crate::verdict::{Stop, Verdict, ensure, ensure_matches};

pub(super) async fn refuses_an_older_token(subject: &Subject) -> Verdict {
    let gate = gate(subject);
    let (old, new) = (FencingToken::new(33)?, FencingToken::new(34)?);
    ensure!(gate.read("k").await?.is_none(), "nothing was ever written");
    for policy in [FencePolicy::Strict, FencePolicy::Repeatable] {
        admitted(&gate, new, FencePolicy::Repeatable, "new").await?;
        let late = gate.write("k", old, policy, "late").await?;
        ensure_matches!(late, Admission::Stale { highest } if highest == new, "a write under an older lease came through");
        let found = gate.read("k").await?;
        ensure!(found.is_some_and(|found| found == (new, "new".into())), "a refused write changed something");
    }
    let again = gate.write("k", new, FencePolicy::Strict, "again").await?;
    ensure_matches!(again, Admission::Stale { .. }, "the strict policy lets a lease write once");
    Ok(())
}

pub(super) async fn keeps_the_highest_of_many(subject: &Subject) -> Verdict {
    const WRITERS: usize = 16;
    const LAST: usize = WRITERS - 1;
    const HIGHEST: usize = WRITERS / 2;
    let gate = gate(subject);
    let written = subject
        .at_once(WRITERS, |writer| {
            let gate = gate.clone();
            async move {
                // The highest is in the middle, so that it can be overwritten by who comes later.
                let token = match writer {
                    HIGHEST => WRITERS,
                    LAST => HIGHEST + 1,
                    other => other + 1,
                };
                let token = FencingToken::new(token as u64)?;
                Ok(gate.write("k", token, FencePolicy::Strict, writer.to_string()).await?)
            }
        })
        .await?;
    ensure!(written[HIGHEST].is_admitted(), "the write under the highest token must be let through");
    let Some((highest, value)) = gate.read("k").await? else { return Stop::failed("what was written is not there") };
    ensure!(
        highest.get() == WRITERS as u64 && value == HIGHEST.to_string(),
        "the write under the highest token must remain, and that under {highest} does"
    );
    Ok(())
}

pub(super) async fn goes_by_the_tokens_of_leases(subject: &Subject) -> Verdict {
    let (gate, locks) = (gate(subject), Locks::new(subject.store.atomic()));
    let mut last = None;
    for turn in 0..5 {
        let lease = locks.lock("k").ttl(long().into()).acquire().await?;
        let Some(token) = lease.fencing_token() else {
            return Stop::failed("the store mints revisions: where is the token?");
        };
        admitted(&gate, token, FencePolicy::Strict, &turn.to_string()).await?;
        if let Some(former) = last {
            let late = gate.write("k", former, FencePolicy::Repeatable, "late").await?;
            ensure_matches!(late, Admission::Stale { .. }, "a write under the lease before came through");
        }
        last = Some(token);
        let _ = lease.release().await?;
    }
    Ok(())
}

/// A gate whose values end with the checks: by itself it keeps them for a year.
fn gate(subject: &Subject) -> FenceGate {
    FenceGate::new(subject.store.atomic()).with_ttl(long())
}

async fn admitted(gate: &FenceGate, token: FencingToken, policy: FencePolicy, value: &str) -> Verdict {
    let written = gate.write("k", token, policy, value).await?;
    ensure_matches!(written, Admission::Admitted(()), "a write under the newest lease must be let through");
    Ok(())
}
