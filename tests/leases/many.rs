//! Very many leases in one process. The short run counts renewals; the long one (`scripts/soak`) also what they cost.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use leasehold::connect;
use leasehold::lock::Locks;
use leasehold_testkit::{Family, RedisServer};
use tokio::time::{Instant, sleep};

/// Set by `scripts/soak`, which runs an optimized build.
const SOAK: &str = "LEASEHOLD_SOAK";

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_leases_are_all_renewed() {
    let soak = std::env::var_os(SOAK).is_some();
    let (count, ttl, length) = match soak {
        true => (10_000, Duration::from_secs(10), Duration::from_secs(60)),
        false => (1_000, Duration::from_secs(6), Duration::from_secs(8)),
    };
    let server = RedisServer::builder().family(Family::Redis).start().await;
    let locks = Locks::new(connect(&server.url()).await.unwrap());
    let requests = (0..count).map(|number| locks.lock(format!("many:{number}")).ttl(ttl).acquire());
    let leases: Vec<_> = stream::iter(requests).buffer_unordered(64).map(Result::unwrap).collect().await;
    assert_eq!(locks.stats().watched, count);

    let (started, used) = (Instant::now(), cpu_time());
    let calls_before = script_calls(&server).await;
    while started.elapsed() < length {
        sleep(Duration::from_secs(1)).await;
        let least = leases.iter().map(leasehold::lock::Lease::remaining).min().unwrap();
        // Renewed at a third, a lease never has less than that of its ttl left, but for the renewal under way.
        assert!(least > ttl / 3, "{least:?} left of {ttl:?}");
    }
    let share = (cpu_time() - used).as_secs_f64() / started.elapsed().as_secs_f64();
    let calls = script_calls(&server).await - calls_before;
    let due = count as f64 * started.elapsed().as_secs_f64() / (ttl.as_secs_f64() / 3.0);
    println!(
        "{count} leases of {ttl:?} for {length:?}: about {due:.0} renewals in {calls} scripts, {:.1}% of one core, {} MiB",
        share * 100.0,
        resident_mib()
    );
    // The server says the same of each: renewals that go together share a script, so scripts are not counted.
    for number in 0..count {
        let holder = locks.inspect(format!("many:{number}")).await.unwrap().unwrap();
        assert!(holder.time_left > ttl / 3, "{holder} of {ttl:?}");
    }
    if soak {
        assert!(share < 0.2, "{:.1}% of one core", share * 100.0);
        assert!(resident_mib() < 100, "{} MiB", resident_mib());
    }
    for lease in &leases {
        lease.check().unwrap();
    }
    drop(leases);
    locks.close().await;
    assert_eq!(locks.stats(), leasehold::lock::Stats::default());
}

/// How many scripts the server has run by their hash.
async fn script_calls(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).await;
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next());
    calls.unwrap().parse().unwrap()
}

/// What this process has used of its cores.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name of the program may have spaces; what comes after it has none.
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // The kernel counts in hundredths of a second for its users, on every architecture of Linux.
    Duration::from_millis(ticks * 10)
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}
