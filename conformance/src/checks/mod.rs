//! The table of checks, and a file for each group.
//!
//! A check is an async function of its [`Subject`]. Its name is the property that it holds the store to. It gets a
//! namespace that nobody else uses, and leaves in it what it likes.

use std::pin::Pin;

use crate::capability::Capability;
use crate::subject::Subject;
use crate::verdict::Verdict;

mod between;
mod expiry;
mod get;
mod keys;
mod revisions;
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
        come_in_the_order_of_writes [REVISIONS],
        leave_room_to_rise [REVISIONS],
    }
}
