use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::Row;
use tokio::time::sleep;

use crate::error::Failure;
use crate::link::Link;
use crate::parameters::Parameters;
use crate::sql::Sql;

/// Deletes what nobody can need any more: entries that ended longer ago than the grace time.
///
/// It walks along the primary key, a bounded number of rows a statement, and passes over what is locked. Of all the
/// processes on one table one has the turn.
#[derive(Clone)]
pub(crate) struct Sweeper {
    link: Link,
    sql: Arc<Sql>,
    grace: Duration,
    interval: Duration,
    is_running: Arc<AtomicBool>,
}

/// How many rows one statement looks at.
const PAGE: i64 = 1000;
/// The pause between two of them.
const PAUSE: Duration = Duration::from_millis(10);

impl Sweeper {
    pub(crate) fn new(link: Link, sql: Arc<Sql>, grace: Duration, interval: Duration) -> Self {
        Self { link, sql, grace, interval, is_running: Arc::default() }
    }

    /// Every operation comes by here: the task is started by the first, and by another where its runtime is gone.
    /// It ends with `alive`, which the store holds.
    pub(crate) fn keep_running(&self, alive: &Arc<()>) {
        if self.interval.is_zero() || self.is_running.load(Ordering::Relaxed) {
            return;
        }
        if self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let (sweeper, alive) = (self.clone(), Arc::downgrade(alive));
        let running = Running(self.is_running.clone());
        tokio::spawn(async move {
            let _running = running;
            // Short naps, so that the task is soon gone when the store is.
            let nap = (sweeper.interval / 20).clamp(Duration::from_millis(10), Duration::from_secs(1));
            let mut slept = Duration::ZERO;
            while alive.strong_count() > 0 {
                sleep(nap).await;
                slept += nap;
                if slept < sweeper.interval {
                    continue;
                }
                slept = Duration::ZERO;
                match sweeper.sweep_in_turn().await {
                    Ok(0) => {}
                    Ok(purged) => tracing::debug!(purged, "purged what had ended"),
                    Err(failure) => tracing::debug!(error = %failure.into_error("purge"), "could not purge"),
                }
            }
        });
    }

    async fn sweep_in_turn(&self) -> Result<u64, Failure> {
        let parameters = Parameters::default().number(micros(self.interval));
        let turn = self.link.rows(&self.sql.turn, parameters, self.link.until()).await?;
        if turn.is_empty() { Ok(0) } else { self.sweep().await }
    }

    /// One walk over the whole table. It answers how many rows are gone.
    pub(crate) async fn sweep(&self) -> Result<u64, Failure> {
        let mut after = Vec::new();
        let mut gone = 0;
        loop {
            let parameters = Parameters::default().bytes(Some(&after)).number(PAGE).number(micros(self.grace));
            let rows = self.link.rows(&self.sql.purge, parameters, self.link.until()).await?;
            let row = rows.first().ok_or_else(Failure::unexpected)?;
            let (last, seen, purged) = (|| -> Result<(Option<Vec<u8>>, i64, i64), sqlx::Error> {
                Ok((row.try_get("last")?, row.try_get("seen")?, row.try_get("purged")?))
            })()
            .map_err(|_| Failure::unexpected())?;
            gone += u64::try_from(purged).unwrap_or(0);
            match last {
                Some(last) if seen == PAGE => after = last,
                _ => return Ok(gone),
            }
            sleep(PAUSE).await;
        }
    }
}

struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

// Checked to be at most a year.
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 2)
}
