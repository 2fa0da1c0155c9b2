//! The table of checks, and a file for each group.
//!
//! A check is an async function of its [`Subject`]. Its name is the property that it holds the store to. It gets a
//! namespace that nobody else uses, and leaves in it what it likes, if that ends within the hour.

use std::pin::Pin;

use crate::capability::Capability;
use crate::subject::Subject;
use crate::verdict::Verdict;

mod batches;
mod between;
mod cancellation;
mod durable;
mod errors;
mod expiry;
mod fence;
mod get;
mod handles;
mod hints;
mod histories;
mod idempotency;
mod keys;
mod leases;
mod remove;
mod revisions;
mod scan;
mod set;
mod shared;
mod single_faults;
mod sliding;
mod try_add;
mod try_expire;
mod try_remove;
mod try_replace;
mod values;

/// A row of the table.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) group: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: for<'s> fn(&'s Subject) -> Pin<Box<dyn Future<Output = Verdict> + 's>>,
}

/// What a check asks of a store. Where it is not met, the check is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The operations of a cache.
    Cache,
    /// A capability.
    Capable(Capability),
    /// The lack of one: whoever does not have it has to say so cleanly.
    Without(Capability),
}

/// Every check.
pub(crate) fn table() -> impl Iterator<Item = &'static Check> {
    GROUPS.iter().copied().flatten()
}

const CACHE: Need = Need::Cache;
const REVISIONS: Need = Need::Capable(Capability::Revisions);
const HINTS: Need = Need::Capable(Capability::Hints);
const NO_HINTS: Need = Need::Without(Capability::Hints);
const SHARED: Need = Need::Capable(Capability::Shared);
const DURABLE: Need = Need::Capable(Capability::Durable);

macro_rules! groups {
    ($($group:ident { $($check:ident $([$($need:ident),+])?,)+ })+) => {
        const GROUPS: &[&[Check]] = &[$(&[$(
            Check {
                name: concat!(stringify!($group), "::", stringify!($check)),
                group: stringify!($group),
                needs: &[$($($need),+)?],
                run: |subject| Box::pin($group::$check(subject)),
            },
        )+],)+];
    };
}

groups! {
    values {
        empty_is_a_value,
        binary_comes_back_byte_for_byte,
        nul_ends_nothing,
        numbers_are_not_read,
        white_space_counts,
        the_longest_comes_back,
        one_byte_over_is_refused_without_effect,
        the_last_byte_counts,
        a_beginning_is_not_the_value,
        case_counts,
    }
    keys {
        case_counts,
        trailing_dots_count,
        unicode_is_not_normalized,
        unicode_comes_back,
        the_longest_are_told_apart,
        wildcards_are_letters,
        braces_are_letters,
        quotes_and_slashes_are_letters,
        numbers_are_not_read,
        composed_parts_stay_apart,
        one_may_begin_another,
        drawn_at_random_stay_apart,
    }
    try_add {
        adds_what_is_absent,
        hands_back_what_is_there,
        leaves_what_is_there_alone,
        exactly_one_of_many_wins,
        losers_see_the_winner,
        takes_an_expired_key,
        takes_a_removed_key,
        exactly_one_takes_an_expired_key,
    }
    try_replace {
        applies_to_the_expected_value,
        refuses_another_value,
        refuses_an_absent_key,
        refuses_an_expired_key,
        brings_a_longer_ttl,
        brings_a_shorter_ttl,
        applies_though_nothing_changes,
        exactly_one_of_many_wins,
        a_chain_of_swaps_loses_none,
    }
    try_remove {
        removes_the_expected_value,
        refuses_another_value,
        refuses_an_absent_key,
        refuses_an_expired_key,
        exactly_one_of_many_wins,
    }
    try_expire {
        lengthens,
        shortens,
        refuses_another_value,
        refuses_an_absent_key,
        never_revives,
        changes_no_value,
        a_late_renewal_does_not_revive,
    }
    get {
        finds_nothing_where_nothing_is,
        sees_the_last_write,
        tells_the_time_left,
        does_not_prolong,
    }
    between {
        a_value_is_removed_or_replaced_and_never_both,
        one_owner_at_a_time,
        what_is_removed_stays_removed,
        a_late_renewal_does_not_undo_a_removal,
        a_former_owner_touches_nothing,
        neighbours_are_left_alone,
    }
    expiry {
        never_early,
        not_late,
        keeps_fractions_of_a_second,
        a_few_milliseconds_are_kept,
        the_longest_ttl_is_kept,
        every_operation_agrees,
        one_end_takes_no_neighbour,
        an_old_end_takes_no_new_entry,
    }
    revisions {
        rise_across_replacement [REVISIONS],
        rise_across_removal [REVISIONS],
        rise_across_expiry [REVISIONS],
        rise_across_sets [CACHE, REVISIONS],
        rise_for_all_handles [REVISIONS],
        are_never_given_twice [REVISIONS],
        come_in_the_order_of_owners [REVISIONS],
        come_in_the_order_of_swaps [REVISIONS],
        leave_room_to_rise [REVISIONS],
    }
    hints {
        a_replacement_is_heard [HINTS],
        a_removal_is_heard [HINTS],
        a_set_is_heard [CACHE, HINTS],
        a_removal_of_any_value_is_heard [CACHE, HINTS],
        each_of_a_batch_is_heard [CACHE, HINTS],
        another_handle_hears [HINTS],
        all_who_listen_hear [HINTS],
        who_stops_listening_disturbs_nobody [HINTS],
        who_does_not_read_holds_nobody_up [HINTS],
        name_only_what_is_listened_for [HINTS],
        a_prefix_hears_its_keys [CACHE, HINTS],
        a_prefix_names_only_its_keys [CACHE, HINTS],
        the_empty_prefix_hears_all_of_the_namespace [CACHE, HINTS],
        without_them_watch_is_unsupported [NO_HINTS],
        without_them_watch_prefix_is_unsupported [CACHE, NO_HINTS],
    }
    set {
        writes_whatever_is_there [CACHE],
        is_a_value_like_any_other [CACHE],
        drops_a_nearer_end [CACHE],
        drops_a_farther_end [CACHE],
        ends_what_never_ended [CACHE],
        never_means_no_end [CACHE],
        the_primitives_take_what_never_ends [CACHE],
        one_byte_over_is_refused_without_effect [CACHE],
    }
    remove {
        takes_whatever_is_there [CACHE],
        of_an_absent_key_is_not_applied [CACHE],
        of_an_expired_key_is_not_applied [CACHE],
    }
    batches {
        get_many_answers_in_order [CACHE],
        get_many_tells_the_time_left [CACHE],
        set_many_writes_each [CACHE],
        set_many_leaves_the_last_of_two [CACHE],
        set_many_numbers_its_writes_in_order [CACHE, REVISIONS],
        set_many_gives_each_its_own_end [CACHE],
        set_many_is_refused_whole [CACHE],
        remove_many_answers_in_order [CACHE],
        of_nothing_are_answered_with_nothing [CACHE],
        of_a_thousand_are_whole [CACHE],
    }
    sliding {
        a_read_prolongs [CACHE],
        a_read_of_many_prolongs [CACHE],
        without_reads_it_ends [CACHE],
        the_absolute_end_wins [CACHE],
        a_read_prolongs_up_to_the_absolute_end [CACHE],
        without_reads_it_ends_before_the_absolute_end [CACHE],
        try_replace_brings_a_fixed_end [CACHE],
        try_expire_brings_a_fixed_end [CACHE],
        try_add_prolongs_nothing [CACHE],
        a_read_tells_the_end_that_it_brings [CACHE],
    }
    scan {
        finds_every_one_of_many [CACHE],
        finds_only_its_prefix [CACHE],
        takes_wildcards_as_letters [CACHE],
        tells_case_apart [CACHE],
        gives_keys_as_they_were_written [CACHE],
        with_the_empty_prefix_stays_in_the_namespace [CACHE],
        shows_nothing_expired [CACHE],
        shows_nothing_removed [CACHE],
        refuses_a_foreign_cursor [CACHE],
        misses_nothing_while_others_remove [CACHE],
    }
    handles {
        of_one_namespace_share_the_data,
        see_each_others_writes_at_once,
        exclude_each_other,
        outlive_each_other,
        of_two_namespaces_never_meet,
        of_a_namespace_that_begins_another_never_meet,
        serve_many_tasks_at_once,
        say_what_they_are,
    }
    errors {
        show_no_value,
        name_the_operation_and_the_store,
    }
    cancellation {
        try_add_may_be_dropped,
        try_replace_may_be_dropped,
        try_remove_may_be_dropped,
        try_expire_may_be_dropped,
        get_may_be_dropped,
        watch_may_be_dropped [HINTS],
        set_may_be_dropped [CACHE],
        remove_may_be_dropped [CACHE],
        batches_may_be_dropped [CACHE],
        scan_may_be_dropped [CACHE],
        hundreds_may_be_dropped,
    }
    leases {
        have_one_holder_at_a_time,
        have_rising_tokens [REVISIONS],
        are_released_by_their_holder_only,
        are_lost_before_another_gets_them,
        are_kept_by_renewal,
        go_to_who_waits_after_a_release,
        go_to_who_waits_after_their_end,
        leave_nothing_behind,
        are_kept_after_their_release_if_asked,
        are_given_back_when_their_acquisition_is_dropped,
        tell_who_holds_them,
        survive_every_single_fault,
    }
    idempotency {
        runs_the_work_once_among_many,
        replays_the_first_answer,
        takes_two_trips_and_a_replay_one,
        another_operation_and_another_payload_are_refused,
        scopes_never_meet,
        a_late_completion_overwrites_nothing,
        a_late_failure_frees_nothing,
        a_late_renewal_renews_nothing,
        long_work_keeps_its_claim,
        a_failed_call_runs_again_at_once,
        after_a_crash_the_work_runs_again,
        the_outcome_is_unknown_after_a_crash_if_asked,
        an_unknown_outcome_is_for_operators,
        who_waits_replays_the_answer,
        who_waits_claims_what_is_given_up,
        an_answer_lives_for_its_ttl,
        an_answer_outlives_its_claim,
        an_answer_of_any_length_is_the_only_one,
        leaves_only_its_record_behind,
        a_begin_that_is_dropped_is_given_back,
        claims_have_rising_tokens [REVISIONS],
        tells_who_claimed_a_call,
        every_record_is_listed [CACHE],
        survives_every_single_fault,
    }
    fence {
        refuses_an_older_token,
        keeps_the_highest_of_many,
        goes_by_the_tokens_of_leases [REVISIONS],
    }
    shared {
        another_process_has_the_same_data [SHARED],
    }
    durable {
        an_answered_write_outlives_its_process [DURABLE],
    }
    histories {
        of_the_primitives_have_an_order,
        of_the_whole_store_have_an_order [CACHE],
    }
}
