//! What an idempotent call promises on real servers, through real faults. What needs no server is in
//! `core/tests/idempotency`, on stepped time.

#![cfg(feature = "full")]
#![allow(clippy::unwrap_used, reason = "a test stops where it meets what it did not expect")]

mod crowd;
#[path = "../leases/rig.rs"]
#[allow(dead_code, reason = "leases use the rest of it")]
mod rig;

/// The scenarios that every store goes through, as a module of tests for each rig.
macro_rules! on_every_store {
    ($($file:ident { $($scenario:ident),+ $(,)? })+) => {
        $(mod $file;)+

        mod redis {
            $($(
                #[tokio::test(flavor = "multi_thread")]
                async fn $scenario() {
                    crate::$file::$scenario(crate::rig::Rig::redis(leasehold_testkit::Family::Redis).await).await;
                }
            )+)+
        }

        mod valkey {
            $($(
                #[tokio::test(flavor = "multi_thread")]
                async fn $scenario() {
                    crate::$file::$scenario(crate::rig::Rig::redis(leasehold_testkit::Family::Valkey).await).await;
                }
            )+)+
        }

        mod postgres {
            $($(
                #[tokio::test(flavor = "multi_thread")]
                async fn $scenario() {
                    crate::$file::$scenario(crate::rig::Rig::postgres().await).await;
                }
            )+)+
        }
    };
}

on_every_store! {
    calls {
        late_ends_touch_nothing_of_the_next_claim,
        long_work_keeps_its_claim,
        the_claim_of_a_killed_process_ends_with_its_ttl,
        a_claim_whose_answer_is_lost_is_recognised,
        fifty_at_once_on_a_slow_link_run_the_work_once,
        an_answer_that_the_store_cannot_take_is_given_and_recorded_later,
        an_answer_is_recorded_after_an_outage_longer_than_its_claim,
        a_panic_frees_the_key,
        an_answer_is_recorded_before_it_is_given,
        other_payloads_and_operations_are_refused_all_along,
        both_ttls_end_by_one_rule,
        nothing_runs_while_the_store_is_away,
        a_message_is_handled_once_and_a_failed_one_again,
        who_waits_hears_of_the_answer,
    }
}
