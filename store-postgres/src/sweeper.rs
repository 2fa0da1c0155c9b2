use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
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
/// processes on one table one has the turn, for as long as its walk takes. One that ends halfway is gone on with by whoever
/// has the next.
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
/// The key of the row of the turn, which comes before every other.
const TURN: &[u8] = &[0];
/// Nobody has this turn.
const NO_TURN: i64 = 0;

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
                match sweeper.sweep_in_turn(&alive).await {
                    Ok(0) => {}
                    Ok(purged) => tracing::debug!(purged, "purged what had ended"),
                    Err(failure) => tracing::debug!(error = %failure.into_error("purge"), "could not purge"),
                }
            }
        });
    }

    async fn sweep_in_turn(&self, alive: &Weak<()>) -> Result<u64, Failure> {
        let parameters = Parameters::default().number(self.turn());
        let turn = self.link.rows(&self.sql.turn, parameters, self.link.until()).await?;
        let Some(row) = turn.first() else { return Ok(0) };
        let (mut after, turn) = read(|| Ok((row.try_get("after")?, row.try_get("turn")?)))?;
        let mut gone = 0;
        while alive.strong_count() > 0 {
            let page = self.page(after, turn).await?;
            gone += page.purged;
            match page.last {
                Some(last) if page.in_turn => after = last,
                Some(_) | None => break,
            }
            sleep(PAUSE).await;
        }
        Ok(gone)
    }

    /// One walk over the whole table, whoever has the turn. It answers how many rows are gone.
    pub(crate) async fn sweep(&self) -> Result<u64, Failure> {
        let (mut after, mut gone) = (TURN.to_vec(), 0);
        loop {
            let page = self.page(after, NO_TURN).await?;
            gone += page.purged;
            match page.last {
                Some(last) => after = last,
                None => return Ok(gone),
            }
            sleep(PAUSE).await;
        }
    }

    async fn page(&self, after: Vec<u8>, turn: i64) -> Result<Page, Failure> {
        let parameters = Parameters::default()
            .bytes(Some(&after))
            .number(PAGE)
            .number(micros(self.grace))
            .number(turn)
            .number(micros(self.interval))
            .number(self.turn());
        let rows = self.link.rows(&self.sql.purge, parameters, self.link.until()).await?;
        let row = rows.first().ok_or_else(Failure::unexpected)?;
        read(|| {
            let purged: i64 = row.try_get("purged")?;
            let purged = u64::try_from(purged).unwrap_or(0);
            Ok(Page { last: row.try_get("last")?, purged, in_turn: row.try_get("in_turn")? })
        })
    }

    /// How long a turn lasts without a page: longer than one can take.
    fn turn(&self) -> i64 {
        micros(self.interval.max(self.link.deadline() * 2))
    }
}

/// What became of a page.
struct Page {
    /// After which key the next begins, if there is one.
    last: Option<Vec<u8>>,
    purged: u64,
    /// Whether whoever asked had the turn.
    in_turn: bool,
}

fn read<T>(read: impl FnOnce() -> Result<T, sqlx::Error>) -> Result<T, Failure> {
    read().map_err(|_| Failure::unexpected())
}

struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

// More than the server can add to its clock is for ever.
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 2)
}
