use std::panic::Location;
use std::time::{Duration, Instant};

/// Waits until `condition` answers true, and panics if it has not within `deadline`.
///
/// The condition is asked at once and then in short, growing intervals of at most
/// 50 ms. The deadline is wall-clock time, also when tokio's clock is paused, and it
/// ends a condition that hangs.
///
/// Cancel safe as far as the condition is: nothing else is kept between the asks.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use leasehold_testkit::eventually;
/// use std::time::Duration;
///
/// let mut asks = 0;
/// eventually(Duration::from_secs(5), async || {
///     asks += 1;
///     asks == 3
/// })
/// .await;
/// # });
/// ```
///
/// # Panics
///
/// When the deadline passes; the message names the caller's line.
#[track_caller]
pub fn eventually<C>(deadline: Duration, condition: C) -> impl Future<Output = ()>
where
    C: AsyncFnMut() -> bool,
{
    // An `async fn` could not carry the caller's line, so it is taken here, before the first poll.
    wait(deadline, condition, Location::caller())
}

async fn wait<C>(deadline: Duration, mut condition: C, caller: &'static Location<'static>)
where
    C: AsyncFnMut() -> bool,
{
    let started = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        match tokio::time::timeout(left, condition()).await {
            Ok(true) => return,
            // On a paused clock the timeout can fire early; only the wall clock ends the wait.
            Ok(false) | Err(_) if started.elapsed() < deadline => {}
            Ok(false) => panic!("{caller}: still not so after {deadline:?}"),
            Err(_) => panic!("{caller}: the condition hung for the rest of {deadline:?}"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// The same for blocking code: whether `condition` came true within `deadline`.
pub(crate) fn eventually_blocking(deadline: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if started.elapsed() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
