//! What a lease promises on real servers, through real faults: a link that is cut, stalled and swallowed, processes that
//! are stopped and killed, servers that restart and forget.
//!
//! Each scenario is written once and runs on every store that has a rig here, Postgres included. What needs no server is
//! in `core/tests/lock`, on stepped time; time is real here, so nothing is asserted about it but bounds that were
//! measured.
//!
//! `forgetting` and `many` are of Redis and Valkey alone: the one flushes and demotes servers by their own commands, the
//! other counts scripts. What is special about Postgres, forgetting included, is in `store-postgres/tests/leases`.

#![cfg(all(feature = "postgres", feature = "redis"))]
#![allow(clippy::unwrap_used, reason = "a test stops where it meets what it did not expect")]

mod forgetting;
mod many;
mod rig;

macro_rules! on_a_store {
    ($store:ident, $rig:expr, $($file:ident { $($scenario:ident),+ })+) => {
        mod $store {
            $($(
                #[tokio::test(flavor = "multi_thread")]
                async fn $scenario() {
                    crate::$file::$scenario($rig.await).await;
                }
            )+)+
        }
    };
}

/// The scenarios that every store goes through, as a module of tests for each rig.
macro_rules! on_every_store {
    ($($file:ident { $($scenario:ident),+ $(,)? })+) => {
        $(mod $file;)+

        on_a_store!(redis, crate::rig::Rig::redis(leasehold_testkit::Family::Redis), $($file { $($scenario),+ })+);
        on_a_store!(valkey, crate::rig::Rig::redis(leasehold_testkit::Family::Valkey), $($file { $($scenario),+ })+);
        on_a_store!(postgres, crate::rig::Rig::postgres(), $($file { $($scenario),+ })+);
    };
}

on_every_store! {
    faults {
        renewal_survives_an_outage_shorter_than_the_lease,
        the_lost_signal_comes_in_time_though_the_store_hangs,
        one_failed_renewal_is_not_a_loss,
        a_lost_acquire_answer_is_reclaimed_and_nobody_enters,
        a_parked_acquire_that_lands_late_is_reclaimed,
        a_grant_that_comes_too_late_is_none,
        a_parked_renewal_that_lands_late_shortens_nothing,
        timeout_contention_and_failure_are_told_apart,
        the_wait_limit_holds_while_the_store_hangs,
    }
    holders {
        an_expired_holder_does_not_free_its_successor,
        a_late_renewal_never_retakes,
        a_bounded_hold_ends_before_the_lease_does,
        nothing_is_sent_and_nothing_is_left_after_release,
        eight_workers_lose_no_increment,
        a_waiter_hears_of_a_release,
    }
    tokens {
        rise_across_release_expiry_and_an_operator,
        rise_among_a_hundred_clients,
    }
    processes {
        a_killed_holder_is_followed_though_hints_are_lost,
        a_stopped_holder_finds_that_it_has_lost,
        a_wall_clock_that_steps_changes_nothing,
        two_processes_are_two_owners,
    }
}
