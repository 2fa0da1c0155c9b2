use crate::broken::Mistake::{self, *};

/// Values, keys, the primitives, and expiry.
#[rustfmt::skip]
pub(super) const ROWS: &[(Mistake, &str)] = &[
    (Nothing, ""),
    (ScanBeginsWithEmptyPages, ""),

    // Values
    (EmptyValueReadsAsMissing, "values::empty_is_a_value batches::set_many_writes_each"),
    (ValuesAreMadeText, "
        values::binary_comes_back_byte_for_byte  values::the_longest_comes_back
        idempotency::runs_the_work_once_among_many  idempotency::replays_the_first_answer
        idempotency::takes_two_trips_and_a_replay_one  idempotency::another_operation_and_another_payload_are_refused
        idempotency::scopes_never_meet  idempotency::a_late_completion_overwrites_nothing
        idempotency::a_late_failure_frees_nothing  idempotency::a_late_renewal_renews_nothing
        idempotency::long_work_keeps_its_claim  idempotency::after_a_crash_the_work_runs_again
        idempotency::the_outcome_is_unknown_after_a_crash_if_asked  idempotency::an_unknown_outcome_is_for_operators
        idempotency::who_waits_replays_the_answer  idempotency::who_waits_claims_what_is_given_up
        idempotency::an_answer_lives_for_its_ttl  idempotency::an_answer_outlives_its_claim
        idempotency::an_answer_of_any_length_is_the_only_one  idempotency::leaves_only_its_record_behind
        idempotency::a_begin_that_is_dropped_is_given_back  idempotency::claims_have_rising_tokens
        idempotency::tells_who_claimed_a_call  idempotency::every_record_is_listed
    "),
    (ValuesAreCutAtNul, "
        values::binary_comes_back_byte_for_byte  values::nul_ends_nothing  values::the_longest_comes_back
        idempotency::runs_the_work_once_among_many  idempotency::replays_the_first_answer
        idempotency::takes_two_trips_and_a_replay_one  idempotency::another_operation_and_another_payload_are_refused
        idempotency::scopes_never_meet  idempotency::a_late_completion_overwrites_nothing
        idempotency::a_late_failure_frees_nothing  idempotency::a_late_renewal_renews_nothing
        idempotency::long_work_keeps_its_claim  idempotency::after_a_crash_the_work_runs_again
        idempotency::the_outcome_is_unknown_after_a_crash_if_asked  idempotency::an_unknown_outcome_is_for_operators
        idempotency::who_waits_replays_the_answer  idempotency::who_waits_claims_what_is_given_up
        idempotency::an_answer_lives_for_its_ttl  idempotency::an_answer_outlives_its_claim
        idempotency::an_answer_of_any_length_is_the_only_one  idempotency::leaves_only_its_record_behind
        idempotency::a_begin_that_is_dropped_is_given_back  idempotency::claims_have_rising_tokens
        idempotency::tells_who_claimed_a_call  idempotency::every_record_is_listed  fence::refuses_an_older_token
        fence::keeps_the_highest_of_many  fence::goes_by_the_tokens_of_leases
    "),
    (ValuesAreReadAsNumbers, "values::numbers_are_not_read keys::numbers_are_not_read"),
    (ValuesAreTrimmed, "values::white_space_counts"),
    (LongValuesAreCut, "
        values::the_longest_comes_back  keys::the_longest_are_told_apart
        idempotency::an_answer_of_any_length_is_the_only_one
    "),
    (TooLongIsTaken, "
        values::one_byte_over_is_refused_without_effect  set::one_byte_over_is_refused_without_effect
        batches::set_many_is_refused_whole  errors::show_no_value  errors::name_the_operation_and_the_store
    "),
    (TooLongIsTakenBySet, "
        set::one_byte_over_is_refused_without_effect  errors::show_no_value  errors::name_the_operation_and_the_store
    "),
    (TooLongLeavesADoubt, "
        values::one_byte_over_is_refused_without_effect  set::one_byte_over_is_refused_without_effect
        batches::set_many_is_refused_whole
    "),
    (TooLongReplacementIsNotApplied, "
        values::one_byte_over_is_refused_without_effect  errors::show_no_value
        errors::name_the_operation_and_the_store
    "),
    (ExpectedMayBeABeginning, "
        values::nul_ends_nothing  values::white_space_counts  values::a_beginning_is_not_the_value
    "),
    (ExpectedIsComparedAtTheBeginning, "values::the_longest_comes_back values::the_last_byte_counts"),
    (ExpectedIsComparedWithoutCase, "values::case_counts"),

    // Keys and namespaces
    (KeyCaseIsFolded, "
        keys::case_counts  keys::unicode_is_not_normalized  keys::composed_parts_stay_apart
        keys::drawn_at_random_stay_apart  between::neighbours_are_left_alone  hints::name_only_what_is_listened_for
        hints::a_prefix_names_only_its_keys  scan::tells_case_apart  scan::gives_keys_as_they_were_written
        idempotency::scopes_never_meet
    "),
    (KeysAreRightTrimmed, "
        keys::trailing_dots_count  keys::drawn_at_random_stay_apart  between::neighbours_are_left_alone
        idempotency::scopes_never_meet
    "),
    (KeysAreNormalized, "keys::unicode_is_not_normalized idempotency::scopes_never_meet"),
    (KeysLoseUnicode, "
        keys::case_counts  keys::unicode_is_not_normalized  keys::unicode_comes_back  keys::the_longest_are_told_apart
        keys::drawn_at_random_stay_apart  scan::gives_keys_as_they_were_written
    "),
    (LongKeysAreCut, "keys::the_longest_are_told_apart idempotency::scopes_never_meet"),
    (WildcardsMatchInKeys, "
        keys::trailing_dots_count  keys::wildcards_are_letters  keys::quotes_and_slashes_are_letters
        keys::drawn_at_random_stay_apart  scan::takes_wildcards_as_letters
    "),
    (OnlyTheHashTagCounts, "
        keys::braces_are_letters  keys::drawn_at_random_stay_apart  scan::gives_keys_as_they_were_written
    "),
    (QuotesAreTakenOutOfKeys, "
        keys::quotes_and_slashes_are_letters  keys::drawn_at_random_stay_apart  scan::takes_wildcards_as_letters
    "),
    (KeysAreReadAsNumbers, "keys::numbers_are_not_read"),
    (KeysAreDecoded, "keys::composed_parts_stay_apart scan::gives_keys_as_they_were_written"),
    (OnlyTwoPartsOfAKeyCount, "
        keys::composed_parts_stay_apart  keys::one_may_begin_another  keys::drawn_at_random_stay_apart
        hints::a_prefix_hears_its_keys  scan::finds_only_its_prefix  idempotency::runs_the_work_once_among_many
        idempotency::scopes_never_meet  idempotency::long_work_keeps_its_claim
        idempotency::an_unknown_outcome_is_for_operators  idempotency::an_answer_of_any_length_is_the_only_one
        idempotency::leaves_only_its_record_behind  idempotency::a_begin_that_is_dropped_is_given_back
        idempotency::every_record_is_listed  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (NamespacesAreCut, "
        hints::the_empty_prefix_hears_all_of_the_namespace  scan::with_the_empty_prefix_stays_in_the_namespace
        handles::of_two_namespaces_never_meet
    "),
    (NamespaceAndKeyAreJoinedWithoutASeparator, "
        hints::the_empty_prefix_hears_all_of_the_namespace  scan::with_the_empty_prefix_stays_in_the_namespace
        handles::of_a_namespace_that_begins_another_never_meet
    "),

    // try_add
    (AddOverwrites, "
        values::empty_is_a_value  values::binary_comes_back_byte_for_byte  values::nul_ends_nothing
        values::numbers_are_not_read  values::white_space_counts  values::the_longest_comes_back
        try_add::hands_back_what_is_there  try_add::leaves_what_is_there_alone  try_add::exactly_one_of_many_wins
        try_add::exactly_one_takes_an_expired_key  between::one_owner_at_a_time  set::is_a_value_like_any_other
        set::never_means_no_end  set::the_primitives_take_what_never_ends  sliding::try_add_prolongs_nothing
        handles::of_one_namespace_share_the_data  handles::exclude_each_other  cancellation::try_replace_may_be_dropped
        cancellation::try_expire_may_be_dropped  cancellation::get_may_be_dropped  cancellation::watch_may_be_dropped
        cancellation::set_may_be_dropped  cancellation::batches_may_be_dropped  cancellation::scan_may_be_dropped
        leases::have_one_holder_at_a_time  leases::are_lost_before_another_gets_them  leases::are_kept_by_renewal
        leases::go_to_who_waits_after_a_release  leases::are_kept_after_their_release_if_asked
        idempotency::runs_the_work_once_among_many  idempotency::replays_the_first_answer
        idempotency::takes_two_trips_and_a_replay_one  idempotency::another_operation_and_another_payload_are_refused
        idempotency::scopes_never_meet  idempotency::a_late_completion_overwrites_nothing
        idempotency::a_late_failure_frees_nothing  idempotency::long_work_keeps_its_claim
        idempotency::after_a_crash_the_work_runs_again  idempotency::the_outcome_is_unknown_after_a_crash_if_asked
        idempotency::an_unknown_outcome_is_for_operators  idempotency::who_waits_replays_the_answer
        idempotency::who_waits_claims_what_is_given_up  idempotency::an_answer_lives_for_its_ttl
        idempotency::an_answer_outlives_its_claim  idempotency::an_answer_of_any_length_is_the_only_one
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (AddChecksThenSets, "
        try_add::exactly_one_of_many_wins  try_add::exactly_one_takes_an_expired_key  between::one_owner_at_a_time
        handles::exclude_each_other  leases::have_one_holder_at_a_time  idempotency::runs_the_work_once_among_many
        fence::keeps_the_highest_of_many  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (AddChecksThenSetsWhatExpired, "
        try_add::exactly_one_takes_an_expired_key  histories::of_the_primitives_have_an_order
    "),
    (AddExcludesInItsHandleOnly, "
        handles::exclude_each_other  leases::have_one_holder_at_a_time  idempotency::runs_the_work_once_among_many
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (AddWritesAfterItsAnswer, "
        values::empty_is_a_value  values::binary_comes_back_byte_for_byte  values::nul_ends_nothing
        values::numbers_are_not_read  values::white_space_counts  values::the_longest_comes_back
        values::one_byte_over_is_refused_without_effect  values::the_last_byte_counts
        values::a_beginning_is_not_the_value  values::case_counts  keys::case_counts  keys::trailing_dots_count
        keys::unicode_is_not_normalized  keys::unicode_comes_back  keys::the_longest_are_told_apart
        keys::wildcards_are_letters  keys::braces_are_letters  keys::quotes_and_slashes_are_letters
        keys::numbers_are_not_read  keys::composed_parts_stay_apart  keys::one_may_begin_another
        keys::drawn_at_random_stay_apart  try_add::adds_what_is_absent  try_add::hands_back_what_is_there
        try_add::leaves_what_is_there_alone  try_add::exactly_one_of_many_wins  try_add::losers_see_the_winner
        try_add::takes_an_expired_key  try_add::takes_a_removed_key  try_add::exactly_one_takes_an_expired_key
        try_replace::applies_to_the_expected_value  try_replace::refuses_another_value
        try_replace::refuses_an_expired_key  try_replace::brings_a_longer_ttl  try_replace::brings_a_shorter_ttl
        try_replace::applies_though_nothing_changes  try_replace::exactly_one_of_many_wins
        try_replace::a_chain_of_swaps_loses_none  try_remove::removes_the_expected_value
        try_remove::refuses_another_value  try_remove::refuses_an_absent_key  try_remove::refuses_an_expired_key
        try_remove::exactly_one_of_many_wins  try_expire::lengthens  try_expire::shortens
        try_expire::refuses_another_value  try_expire::never_revives  try_expire::changes_no_value
        get::finds_nothing_where_nothing_is  get::sees_the_last_write  get::tells_the_time_left  get::does_not_prolong
        between::a_value_is_removed_or_replaced_and_never_both  between::one_owner_at_a_time
        between::what_is_removed_stays_removed  between::a_late_renewal_does_not_undo_a_removal
        between::a_former_owner_touches_nothing  between::neighbours_are_left_alone  expiry::never_early
        expiry::not_late  expiry::keeps_fractions_of_a_second  expiry::a_few_milliseconds_are_kept
        expiry::the_longest_ttl_is_kept  expiry::every_operation_agrees  expiry::one_end_takes_no_neighbour
        expiry::an_old_end_takes_no_new_entry  revisions::rise_across_replacement  revisions::rise_across_removal
        revisions::rise_across_expiry  revisions::rise_for_all_handles  revisions::are_never_given_twice
        revisions::come_in_the_order_of_owners  revisions::come_in_the_order_of_swaps
        hints::who_does_not_read_holds_nobody_up  hints::name_only_what_is_listened_for
        hints::a_prefix_names_only_its_keys  hints::the_empty_prefix_hears_all_of_the_namespace
        remove::takes_whatever_is_there  remove::of_an_absent_key_is_not_applied  batches::get_many_answers_in_order
        batches::get_many_tells_the_time_left  batches::remove_many_answers_in_order
        handles::of_one_namespace_share_the_data  handles::see_each_others_writes_at_once  handles::exclude_each_other
        handles::of_two_namespaces_never_meet  handles::of_a_namespace_that_begins_another_never_meet
        handles::serve_many_tasks_at_once  cancellation::try_add_may_be_dropped
        cancellation::try_replace_may_be_dropped  cancellation::try_remove_may_be_dropped
        cancellation::try_expire_may_be_dropped  cancellation::get_may_be_dropped  cancellation::watch_may_be_dropped
        cancellation::set_may_be_dropped  cancellation::remove_may_be_dropped  cancellation::batches_may_be_dropped
        cancellation::scan_may_be_dropped  cancellation::hundreds_may_be_dropped  leases::have_one_holder_at_a_time
        leases::have_rising_tokens  leases::are_released_by_their_holder_only  leases::are_lost_before_another_gets_them
        leases::are_kept_by_renewal  leases::go_to_who_waits_after_a_release  leases::go_to_who_waits_after_their_end
        leases::leave_nothing_behind  leases::are_kept_after_their_release_if_asked
        leases::are_given_back_when_their_acquisition_is_dropped  leases::tell_who_holds_them
        idempotency::runs_the_work_once_among_many  idempotency::replays_the_first_answer
        idempotency::takes_two_trips_and_a_replay_one  idempotency::another_operation_and_another_payload_are_refused
        idempotency::scopes_never_meet  idempotency::a_late_completion_overwrites_nothing
        idempotency::a_late_failure_frees_nothing  idempotency::a_late_renewal_renews_nothing
        idempotency::long_work_keeps_its_claim  idempotency::after_a_crash_the_work_runs_again
        idempotency::the_outcome_is_unknown_after_a_crash_if_asked  idempotency::an_unknown_outcome_is_for_operators
        idempotency::who_waits_replays_the_answer  idempotency::who_waits_claims_what_is_given_up
        idempotency::an_answer_lives_for_its_ttl  idempotency::an_answer_of_any_length_is_the_only_one
        idempotency::leaves_only_its_record_behind  idempotency::claims_have_rising_tokens
        idempotency::tells_who_claimed_a_call  idempotency::every_record_is_listed  fence::refuses_an_older_token
        fence::keeps_the_highest_of_many  fence::goes_by_the_tokens_of_leases
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (AddNeverReclaimsWhatExpired, "
        try_add::takes_an_expired_key  try_add::exactly_one_takes_an_expired_key  try_expire::never_revives
        between::a_former_owner_touches_nothing  expiry::a_few_milliseconds_are_kept  expiry::every_operation_agrees
        expiry::one_end_takes_no_neighbour  revisions::rise_across_expiry  sliding::try_add_prolongs_nothing
        leases::are_released_by_their_holder_only  leases::are_lost_before_another_gets_them
        leases::go_to_who_waits_after_their_end  leases::are_kept_after_their_release_if_asked
        idempotency::a_late_completion_overwrites_nothing  idempotency::a_late_failure_frees_nothing
        idempotency::a_late_renewal_renews_nothing  idempotency::after_a_crash_the_work_runs_again
        idempotency::the_outcome_is_unknown_after_a_crash_if_asked  idempotency::an_answer_lives_for_its_ttl
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (AddRefusesWhatWasRemoved, "
        try_add::takes_a_removed_key  between::one_owner_at_a_time  expiry::an_old_end_takes_no_new_entry
        revisions::rise_across_removal  revisions::rise_across_sets  revisions::rise_for_all_handles
        set::writes_whatever_is_there  handles::outlive_each_other
        handles::of_a_namespace_that_begins_another_never_meet  cancellation::batches_may_be_dropped
        leases::have_one_holder_at_a_time  leases::have_rising_tokens  leases::go_to_who_waits_after_a_release
        leases::leave_nothing_behind  leases::are_kept_after_their_release_if_asked
        leases::are_given_back_when_their_acquisition_is_dropped  idempotency::a_failed_call_runs_again_at_once
        idempotency::after_a_crash_the_work_runs_again  idempotency::the_outcome_is_unknown_after_a_crash_if_asked
        idempotency::an_unknown_outcome_is_for_operators  idempotency::who_waits_claims_what_is_given_up
        idempotency::a_begin_that_is_dropped_is_given_back  idempotency::claims_have_rising_tokens
        fence::goes_by_the_tokens_of_leases  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (AddForgetsTheTtl, "
        try_add::leaves_what_is_there_alone  try_add::takes_an_expired_key  try_add::exactly_one_takes_an_expired_key
        try_replace::refuses_an_expired_key  try_remove::refuses_an_expired_key  try_expire::refuses_another_value
        try_expire::never_revives  get::tells_the_time_left  get::does_not_prolong
        between::a_former_owner_touches_nothing  between::neighbours_are_left_alone  expiry::not_late
        expiry::keeps_fractions_of_a_second  expiry::a_few_milliseconds_are_kept  expiry::the_longest_ttl_is_kept
        expiry::every_operation_agrees  expiry::one_end_takes_no_neighbour  batches::get_many_answers_in_order
        batches::get_many_tells_the_time_left  scan::shows_nothing_expired  leases::are_released_by_their_holder_only
        leases::are_lost_before_another_gets_them  leases::go_to_who_waits_after_their_end  leases::tell_who_holds_them
        idempotency::a_late_completion_overwrites_nothing  idempotency::a_late_failure_frees_nothing
        idempotency::a_late_renewal_renews_nothing  idempotency::after_a_crash_the_work_runs_again
        idempotency::the_outcome_is_unknown_after_a_crash_if_asked  idempotency::an_unknown_outcome_is_for_operators
        idempotency::tells_who_claimed_a_call  idempotency::every_record_is_listed
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (AddHandsBackTheFirstValue, "
        try_add::hands_back_what_is_there  idempotency::runs_the_work_once_among_many
        idempotency::replays_the_first_answer  idempotency::takes_two_trips_and_a_replay_one
        idempotency::another_operation_and_another_payload_are_refused  idempotency::scopes_never_meet
        idempotency::a_late_completion_overwrites_nothing  idempotency::long_work_keeps_its_claim
        idempotency::an_unknown_outcome_is_for_operators  idempotency::who_waits_replays_the_answer
        idempotency::an_answer_lives_for_its_ttl  idempotency::an_answer_outlives_its_claim
        idempotency::an_answer_of_any_length_is_the_only_one  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (AddHandsBackItsOwnValue, "
        values::empty_is_a_value  values::binary_comes_back_byte_for_byte  values::nul_ends_nothing
        values::numbers_are_not_read  values::white_space_counts  values::the_longest_comes_back
        try_add::hands_back_what_is_there  try_add::losers_see_the_winner  set::is_a_value_like_any_other
        handles::of_one_namespace_share_the_data  cancellation::try_add_may_be_dropped
        cancellation::try_replace_may_be_dropped  cancellation::try_expire_may_be_dropped
        cancellation::get_may_be_dropped  cancellation::watch_may_be_dropped  cancellation::set_may_be_dropped
        cancellation::batches_may_be_dropped  cancellation::scan_may_be_dropped  cancellation::hundreds_may_be_dropped
        leases::have_one_holder_at_a_time  leases::are_lost_before_another_gets_them  leases::are_kept_by_renewal
        leases::go_to_who_waits_after_a_release  leases::go_to_who_waits_after_their_end
        leases::are_kept_after_their_release_if_asked  leases::are_given_back_when_their_acquisition_is_dropped
        idempotency::runs_the_work_once_among_many  idempotency::replays_the_first_answer
        idempotency::takes_two_trips_and_a_replay_one  idempotency::another_operation_and_another_payload_are_refused
        idempotency::scopes_never_meet  idempotency::a_late_completion_overwrites_nothing
        idempotency::a_late_failure_frees_nothing  idempotency::long_work_keeps_its_claim
        idempotency::after_a_crash_the_work_runs_again  idempotency::the_outcome_is_unknown_after_a_crash_if_asked
        idempotency::an_unknown_outcome_is_for_operators  idempotency::who_waits_replays_the_answer
        idempotency::who_waits_claims_what_is_given_up  idempotency::an_answer_lives_for_its_ttl
        idempotency::an_answer_outlives_its_claim  idempotency::an_answer_of_any_length_is_the_only_one
        idempotency::a_begin_that_is_dropped_is_given_back  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (AddHandsBackNoTimeLeft, "
        try_add::hands_back_what_is_there  leases::are_lost_before_another_gets_them
        leases::go_to_who_waits_after_their_end  idempotency::the_outcome_is_unknown_after_a_crash_if_asked
        idempotency::an_unknown_outcome_is_for_operators  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (AddThatLosesProlongs, "
        try_add::leaves_what_is_there_alone  sliding::try_add_prolongs_nothing
        leases::are_lost_before_another_gets_them  leases::go_to_who_waits_after_their_end
        leases::are_kept_after_their_release_if_asked  idempotency::long_work_keeps_its_claim
        idempotency::after_a_crash_the_work_runs_again  idempotency::the_outcome_is_unknown_after_a_crash_if_asked
        idempotency::an_answer_lives_for_its_ttl  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),

    // try_replace
    (ReplaceNeverApplies, "
        values::empty_is_a_value  values::the_longest_comes_back  try_add::hands_back_what_is_there
        try_replace::applies_to_the_expected_value  try_replace::brings_a_longer_ttl  try_replace::brings_a_shorter_ttl
        try_replace::applies_though_nothing_changes  try_replace::exactly_one_of_many_wins
        try_replace::a_chain_of_swaps_loses_none  get::sees_the_last_write  between::neighbours_are_left_alone
        revisions::rise_across_replacement  revisions::rise_across_expiry  revisions::rise_across_sets
        revisions::come_in_the_order_of_swaps  hints::a_replacement_is_heard  hints::another_handle_hears
        hints::all_who_listen_hear  hints::who_stops_listening_disturbs_nobody  hints::who_does_not_read_holds_nobody_up
        hints::name_only_what_is_listened_for  hints::a_prefix_hears_its_keys  hints::a_prefix_names_only_its_keys
        hints::the_empty_prefix_hears_all_of_the_namespace  set::is_a_value_like_any_other
        set::the_primitives_take_what_never_ends  batches::set_many_numbers_its_writes_in_order
        sliding::try_replace_brings_a_fixed_end  handles::see_each_others_writes_at_once
        handles::serve_many_tasks_at_once  cancellation::try_add_may_be_dropped
        cancellation::try_replace_may_be_dropped  cancellation::try_remove_may_be_dropped
        cancellation::try_expire_may_be_dropped  cancellation::get_may_be_dropped  cancellation::watch_may_be_dropped
        cancellation::set_may_be_dropped  cancellation::remove_may_be_dropped  cancellation::batches_may_be_dropped
        cancellation::scan_may_be_dropped  cancellation::hundreds_may_be_dropped
        leases::are_kept_after_their_release_if_asked  idempotency::runs_the_work_once_among_many
        idempotency::replays_the_first_answer  idempotency::takes_two_trips_and_a_replay_one
        idempotency::another_operation_and_another_payload_are_refused  idempotency::scopes_never_meet
        idempotency::a_late_completion_overwrites_nothing  idempotency::a_late_failure_frees_nothing
        idempotency::a_late_renewal_renews_nothing  idempotency::long_work_keeps_its_claim
        idempotency::after_a_crash_the_work_runs_again  idempotency::the_outcome_is_unknown_after_a_crash_if_asked
        idempotency::an_unknown_outcome_is_for_operators  idempotency::who_waits_replays_the_answer
        idempotency::who_waits_claims_what_is_given_up  idempotency::an_answer_lives_for_its_ttl
        idempotency::an_answer_outlives_its_claim  idempotency::an_answer_of_any_length_is_the_only_one
        idempotency::leaves_only_its_record_behind  idempotency::a_begin_that_is_dropped_is_given_back
        idempotency::claims_have_rising_tokens  idempotency::tells_who_claimed_a_call
        idempotency::every_record_is_listed  fence::refuses_an_older_token  fence::keeps_the_highest_of_many
        fence::goes_by_the_tokens_of_leases  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (ReplaceIgnoresExpected, "
        values::nul_ends_nothing  values::the_longest_comes_back  values::the_last_byte_counts
        values::a_beginning_is_not_the_value  values::case_counts  try_replace::refuses_another_value
        try_replace::exactly_one_of_many_wins  between::a_value_is_removed_or_replaced_and_never_both
        between::a_former_owner_touches_nothing  idempotency::a_late_completion_overwrites_nothing
        idempotency::an_unknown_outcome_is_for_operators  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (ReplaceWritesWhereNothingIs, "
        try_replace::refuses_an_absent_key  try_replace::refuses_an_expired_key
        between::a_value_is_removed_or_replaced_and_never_both  between::what_is_removed_stays_removed
        expiry::every_operation_agrees  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (ReplaceRevives, "
        try_replace::refuses_an_expired_key  expiry::every_operation_agrees
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (ReplaceDropsTheTtl, "
        try_add::hands_back_what_is_there  try_replace::brings_a_shorter_ttl  sliding::try_replace_brings_a_fixed_end
        leases::are_kept_after_their_release_if_asked  idempotency::an_answer_lives_for_its_ttl
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (ReplaceKeepsTheTtl, "
        try_add::hands_back_what_is_there  try_replace::brings_a_longer_ttl  try_replace::brings_a_shorter_ttl
        sliding::try_replace_brings_a_fixed_end  leases::are_kept_after_their_release_if_asked
        idempotency::an_answer_lives_for_its_ttl  idempotency::an_answer_outlives_its_claim
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (ReplaceSkipsTheSameValue, "try_replace::applies_though_nothing_changes fence::refuses_an_older_token"),
    (ReplaceChecksThenSets, "
        try_replace::exactly_one_of_many_wins  try_replace::a_chain_of_swaps_loses_none
        between::a_value_is_removed_or_replaced_and_never_both  fence::keeps_the_highest_of_many
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (ReplaceRemovesThenAdds, "
        try_replace::a_chain_of_swaps_loses_none  revisions::come_in_the_order_of_swaps
        cancellation::try_replace_may_be_dropped  fence::keeps_the_highest_of_many
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),

    // try_remove
    (RemoveNeverApplies, "
        values::empty_is_a_value  values::the_longest_comes_back  keys::case_counts  keys::trailing_dots_count
        keys::unicode_is_not_normalized  keys::unicode_comes_back  keys::the_longest_are_told_apart
        keys::wildcards_are_letters  keys::braces_are_letters  keys::quotes_and_slashes_are_letters
        keys::numbers_are_not_read  keys::composed_parts_stay_apart  keys::one_may_begin_another
        keys::drawn_at_random_stay_apart  try_add::takes_a_removed_key  try_remove::removes_the_expected_value
        try_remove::refuses_an_absent_key  try_remove::exactly_one_of_many_wins  try_expire::changes_no_value
        get::finds_nothing_where_nothing_is  get::sees_the_last_write  between::one_owner_at_a_time
        between::what_is_removed_stays_removed  between::a_late_renewal_does_not_undo_a_removal
        between::neighbours_are_left_alone  expiry::an_old_end_takes_no_new_entry  revisions::rise_across_removal
        revisions::rise_for_all_handles  revisions::are_never_given_twice  revisions::come_in_the_order_of_owners
        hints::a_removal_is_heard  hints::name_only_what_is_listened_for  set::writes_whatever_is_there
        set::is_a_value_like_any_other  set::the_primitives_take_what_never_ends
        remove::of_an_absent_key_is_not_applied  scan::shows_nothing_removed  handles::of_one_namespace_share_the_data
        handles::outlive_each_other  handles::of_two_namespaces_never_meet
        handles::of_a_namespace_that_begins_another_never_meet  handles::serve_many_tasks_at_once
        cancellation::try_add_may_be_dropped  cancellation::try_replace_may_be_dropped
        cancellation::try_remove_may_be_dropped  cancellation::try_expire_may_be_dropped
        cancellation::get_may_be_dropped  cancellation::watch_may_be_dropped  cancellation::set_may_be_dropped
        cancellation::remove_may_be_dropped  cancellation::batches_may_be_dropped  cancellation::scan_may_be_dropped
        cancellation::hundreds_may_be_dropped  leases::have_one_holder_at_a_time  leases::have_rising_tokens
        leases::are_released_by_their_holder_only  leases::are_lost_before_another_gets_them
        leases::are_kept_by_renewal  leases::go_to_who_waits_after_a_release  leases::go_to_who_waits_after_their_end
        leases::leave_nothing_behind  leases::are_kept_after_their_release_if_asked
        leases::are_given_back_when_their_acquisition_is_dropped  leases::tell_who_holds_them
        idempotency::a_failed_call_runs_again_at_once  idempotency::after_a_crash_the_work_runs_again
        idempotency::the_outcome_is_unknown_after_a_crash_if_asked  idempotency::an_unknown_outcome_is_for_operators
        idempotency::who_waits_claims_what_is_given_up  idempotency::leaves_only_its_record_behind
        idempotency::a_begin_that_is_dropped_is_given_back  idempotency::claims_have_rising_tokens
        fence::goes_by_the_tokens_of_leases  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (RemoveIgnoresExpected, "
        values::binary_comes_back_byte_for_byte  values::nul_ends_nothing  values::numbers_are_not_read
        values::white_space_counts  values::the_last_byte_counts  values::a_beginning_is_not_the_value
        values::case_counts  try_remove::refuses_another_value  between::a_value_is_removed_or_replaced_and_never_both
        between::a_former_owner_touches_nothing  leases::are_released_by_their_holder_only
        idempotency::a_late_failure_frees_nothing  histories::of_the_whole_store_have_an_order
    "),
    (RemoveAlwaysSaysApplied, "
        try_remove::refuses_an_absent_key  try_remove::refuses_an_expired_key  try_remove::exactly_one_of_many_wins
        between::a_value_is_removed_or_replaced_and_never_both  between::what_is_removed_stays_removed
        expiry::every_operation_agrees  leases::tell_who_holds_them  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (RemoveAppliesToWhatExpired, "
        try_remove::refuses_an_expired_key  expiry::every_operation_agrees  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (RemoveChecksThenRemoves, "
        try_remove::exactly_one_of_many_wins  between::a_value_is_removed_or_replaced_and_never_both
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (RemoveOnlyHides, "
        between::a_value_is_removed_or_replaced_and_never_both  between::what_is_removed_stays_removed
        between::a_late_renewal_does_not_undo_a_removal  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (RemoveTakesWhatBeginsSo, "
        keys::trailing_dots_count  keys::unicode_is_not_normalized  keys::wildcards_are_letters
        keys::braces_are_letters  keys::numbers_are_not_read  keys::one_may_begin_another
        keys::drawn_at_random_stay_apart  between::neighbours_are_left_alone  hints::name_only_what_is_listened_for
    "),

    // try_expire
    (ExpireRevives, "
        try_expire::never_revives  expiry::every_operation_agrees  idempotency::a_late_renewal_renews_nothing
        histories::of_the_primitives_have_an_order
    "),
    (ExpireOnlyShortens, "
        try_expire::lengthens  expiry::the_longest_ttl_is_kept  leases::are_kept_by_renewal
        idempotency::long_work_keeps_its_claim  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (ExpireOnlyLengthens, "
        try_expire::shortens  get::tells_the_time_left  revisions::rise_across_expiry
        set::the_primitives_take_what_never_ends  sliding::try_expire_brings_a_fixed_end
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (ExpireChangesTheValue, "
        values::empty_is_a_value  values::the_longest_comes_back  try_expire::lengthens  try_expire::changes_no_value
        get::tells_the_time_left  between::a_late_renewal_does_not_undo_a_removal  between::neighbours_are_left_alone
        expiry::the_longest_ttl_is_kept  set::is_a_value_like_any_other  cancellation::try_expire_may_be_dropped
        leases::are_kept_by_renewal  idempotency::long_work_keeps_its_claim  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (ExpireIgnoresExpected, "
        values::the_last_byte_counts  values::a_beginning_is_not_the_value  values::case_counts
        try_expire::refuses_another_value  between::a_former_owner_touches_nothing
        idempotency::a_late_renewal_renews_nothing  histories::of_the_whole_store_have_an_order
    "),
    (ExpireAlwaysSaysApplied, "
        try_expire::refuses_an_absent_key  try_expire::never_revives  between::what_is_removed_stays_removed
        expiry::every_operation_agrees  idempotency::a_late_renewal_renews_nothing
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (ExpireIsJudgedBeforeAWait, "
        try_expire::a_late_renewal_does_not_revive  histories::of_the_primitives_have_an_order
    "),
    (ExpireReadsThenWrites, "between::a_late_renewal_does_not_undo_a_removal"),
    (ExpireTakesWhatBeginsSo, "between::neighbours_are_left_alone"),

    // get
    (GetServesWhatExpired, "
        try_add::leaves_what_is_there_alone  try_replace::refuses_an_expired_key  try_replace::brings_a_shorter_ttl
        try_expire::shortens  try_expire::refuses_another_value  try_expire::never_revives
        try_expire::a_late_renewal_does_not_revive  get::does_not_prolong  expiry::not_late
        expiry::keeps_fractions_of_a_second  expiry::a_few_milliseconds_are_kept  expiry::every_operation_agrees
        expiry::one_end_takes_no_neighbour  set::drops_a_farther_end  set::ends_what_never_ended
        set::the_primitives_take_what_never_ends  sliding::without_reads_it_ends  sliding::the_absolute_end_wins
        sliding::without_reads_it_ends_before_the_absolute_end  sliding::try_replace_brings_a_fixed_end
        sliding::try_expire_brings_a_fixed_end  idempotency::an_answer_lives_for_its_ttl
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (GetProlongs, "
        try_replace::brings_a_shorter_ttl  try_expire::shortens  try_expire::a_late_renewal_does_not_revive
        get::tells_the_time_left  get::does_not_prolong  set::drops_a_farther_end  set::ends_what_never_ended
        set::the_primitives_take_what_never_ends  sliding::the_absolute_end_wins
        sliding::try_replace_brings_a_fixed_end  sliding::try_expire_brings_a_fixed_end
        idempotency::an_answer_lives_for_its_ttl  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (TimeLeftIsInSeconds, "
        try_add::hands_back_what_is_there  get::tells_the_time_left  between::a_former_owner_touches_nothing
        between::neighbours_are_left_alone  expiry::the_longest_ttl_is_kept  batches::get_many_tells_the_time_left
        sliding::a_read_tells_the_end_that_it_brings  leases::tell_who_holds_them
        idempotency::a_late_renewal_renews_nothing  idempotency::the_outcome_is_unknown_after_a_crash_if_asked
        idempotency::an_unknown_outcome_is_for_operators  idempotency::tells_who_claimed_a_call
        idempotency::every_record_is_listed  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (TimeLeftIsTheTtl, "
        get::tells_the_time_left  idempotency::the_outcome_is_unknown_after_a_crash_if_asked
        idempotency::an_unknown_outcome_is_for_operators  idempotency::every_record_is_listed
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (ReadsAreKeptForAWhile, "
        try_expire::a_late_renewal_does_not_revive  get::does_not_prolong  handles::see_each_others_writes_at_once
        leases::tell_who_holds_them  idempotency::tells_who_claimed_a_call  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (ReadsAreKeptOverOwnWrites, "
        values::the_longest_comes_back  keys::case_counts  keys::trailing_dots_count  keys::unicode_is_not_normalized
        keys::unicode_comes_back  keys::the_longest_are_told_apart  keys::wildcards_are_letters
        keys::braces_are_letters  keys::quotes_and_slashes_are_letters  keys::numbers_are_not_read
        keys::composed_parts_stay_apart  keys::one_may_begin_another  keys::drawn_at_random_stay_apart
        try_add::takes_a_removed_key  try_replace::applies_to_the_expected_value
        try_replace::a_chain_of_swaps_loses_none  try_expire::a_late_renewal_does_not_revive  get::sees_the_last_write
        get::does_not_prolong  revisions::come_in_the_order_of_swaps  set::writes_whatever_is_there
        handles::see_each_others_writes_at_once  handles::serve_many_tasks_at_once  leases::leave_nothing_behind
        leases::tell_who_holds_them  idempotency::leaves_only_its_record_behind  idempotency::claims_have_rising_tokens
        idempotency::tells_who_claimed_a_call  fence::refuses_an_older_token  fence::keeps_the_highest_of_many
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (AnswersAreMixedUp, "handles::serve_many_tasks_at_once histories::of_the_primitives_have_an_order"),

    // Expiry
    (TtlIsCutToSeconds, "
        try_add::leaves_what_is_there_alone  try_add::takes_an_expired_key  try_add::exactly_one_takes_an_expired_key
        try_replace::refuses_an_expired_key  try_replace::brings_a_shorter_ttl  try_remove::refuses_an_expired_key
        try_expire::shortens  try_expire::refuses_another_value  try_expire::never_revives
        try_expire::a_late_renewal_does_not_revive  get::tells_the_time_left  get::does_not_prolong
        between::a_former_owner_touches_nothing  expiry::not_late  expiry::keeps_fractions_of_a_second
        expiry::a_few_milliseconds_are_kept  expiry::every_operation_agrees  expiry::one_end_takes_no_neighbour
        revisions::rise_across_expiry  set::drops_a_farther_end  set::ends_what_never_ended
        set::the_primitives_take_what_never_ends  remove::of_an_expired_key_is_not_applied
        batches::get_many_answers_in_order  batches::get_many_tells_the_time_left
        batches::set_many_gives_each_its_own_end  sliding::try_replace_brings_a_fixed_end
        sliding::try_expire_brings_a_fixed_end  scan::shows_nothing_expired  leases::are_released_by_their_holder_only
        leases::are_kept_after_their_release_if_asked  idempotency::a_late_completion_overwrites_nothing
        idempotency::a_late_failure_frees_nothing  idempotency::a_late_renewal_renews_nothing
        idempotency::after_a_crash_the_work_runs_again  idempotency::an_answer_lives_for_its_ttl
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (EndsEarly, "
        try_add::hands_back_what_is_there  try_replace::brings_a_shorter_ttl  try_expire::shortens
        get::tells_the_time_left  between::a_former_owner_touches_nothing  between::neighbours_are_left_alone
        expiry::never_early  expiry::keeps_fractions_of_a_second  expiry::the_longest_ttl_is_kept
        set::drops_a_farther_end  set::ends_what_never_ended  set::the_primitives_take_what_never_ends
        batches::get_many_tells_the_time_left  leases::tell_who_holds_them  idempotency::a_late_renewal_renews_nothing
        idempotency::long_work_keeps_its_claim  idempotency::after_a_crash_the_work_runs_again
        idempotency::the_outcome_is_unknown_after_a_crash_if_asked  idempotency::an_answer_lives_for_its_ttl
        idempotency::tells_who_claimed_a_call  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (EndsAtHalf, "
        try_add::hands_back_what_is_there  try_replace::brings_a_shorter_ttl  try_expire::shortens
        get::tells_the_time_left  between::a_former_owner_touches_nothing  between::neighbours_are_left_alone
        expiry::never_early  expiry::keeps_fractions_of_a_second  expiry::the_longest_ttl_is_kept
        set::drops_a_farther_end  set::ends_what_never_ended  set::the_primitives_take_what_never_ends
        batches::get_many_tells_the_time_left  leases::are_lost_before_another_gets_them
        leases::are_kept_after_their_release_if_asked  leases::tell_who_holds_them
        idempotency::a_late_renewal_renews_nothing  idempotency::long_work_keeps_its_claim
        idempotency::after_a_crash_the_work_runs_again  idempotency::the_outcome_is_unknown_after_a_crash_if_asked
        idempotency::an_answer_lives_for_its_ttl  idempotency::tells_who_claimed_a_call
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (EndsLate, "
        try_add::hands_back_what_is_there  try_add::leaves_what_is_there_alone  try_add::takes_an_expired_key
        try_add::exactly_one_takes_an_expired_key  try_replace::refuses_an_expired_key
        try_replace::brings_a_shorter_ttl  try_remove::refuses_an_expired_key  try_expire::shortens
        try_expire::refuses_another_value  try_expire::never_revives  get::tells_the_time_left  get::does_not_prolong
        between::a_former_owner_touches_nothing  between::neighbours_are_left_alone  expiry::not_late
        expiry::keeps_fractions_of_a_second  expiry::a_few_milliseconds_are_kept  expiry::every_operation_agrees
        expiry::one_end_takes_no_neighbour  revisions::rise_across_expiry  set::drops_a_farther_end
        set::ends_what_never_ended  set::the_primitives_take_what_never_ends  remove::of_an_expired_key_is_not_applied
        batches::get_many_answers_in_order  batches::get_many_tells_the_time_left
        batches::set_many_gives_each_its_own_end  sliding::try_replace_brings_a_fixed_end
        sliding::try_expire_brings_a_fixed_end  scan::shows_nothing_expired  leases::are_released_by_their_holder_only
        leases::are_kept_after_their_release_if_asked  leases::tell_who_holds_them
        idempotency::a_late_completion_overwrites_nothing  idempotency::a_late_failure_frees_nothing
        idempotency::a_late_renewal_renews_nothing  idempotency::after_a_crash_the_work_runs_again
        idempotency::the_outcome_is_unknown_after_a_crash_if_asked  idempotency::an_unknown_outcome_is_for_operators
        idempotency::an_answer_lives_for_its_ttl  idempotency::tells_who_claimed_a_call
        idempotency::every_record_is_listed  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (NeverEnds, "
        try_add::hands_back_what_is_there  try_add::leaves_what_is_there_alone  try_add::takes_an_expired_key
        try_add::exactly_one_takes_an_expired_key  try_replace::refuses_an_expired_key
        try_replace::brings_a_shorter_ttl  try_remove::refuses_an_expired_key  try_expire::shortens
        try_expire::refuses_another_value  try_expire::never_revives  try_expire::a_late_renewal_does_not_revive
        get::tells_the_time_left  get::does_not_prolong  between::a_former_owner_touches_nothing
        between::neighbours_are_left_alone  expiry::not_late  expiry::keeps_fractions_of_a_second
        expiry::a_few_milliseconds_are_kept  expiry::the_longest_ttl_is_kept  expiry::every_operation_agrees
        expiry::one_end_takes_no_neighbour  revisions::rise_across_expiry  set::drops_a_farther_end
        set::ends_what_never_ended  set::the_primitives_take_what_never_ends  remove::of_an_expired_key_is_not_applied
        batches::get_many_answers_in_order  batches::get_many_tells_the_time_left
        batches::set_many_gives_each_its_own_end  sliding::without_reads_it_ends  sliding::the_absolute_end_wins
        sliding::without_reads_it_ends_before_the_absolute_end  sliding::try_replace_brings_a_fixed_end
        sliding::try_expire_brings_a_fixed_end  sliding::try_add_prolongs_nothing
        sliding::a_read_tells_the_end_that_it_brings  scan::shows_nothing_expired
        leases::are_released_by_their_holder_only  leases::are_lost_before_another_gets_them
        leases::go_to_who_waits_after_their_end  leases::are_kept_after_their_release_if_asked
        leases::tell_who_holds_them  idempotency::a_late_completion_overwrites_nothing
        idempotency::a_late_failure_frees_nothing  idempotency::a_late_renewal_renews_nothing
        idempotency::after_a_crash_the_work_runs_again  idempotency::the_outcome_is_unknown_after_a_crash_if_asked
        idempotency::an_unknown_outcome_is_for_operators  idempotency::an_answer_lives_for_its_ttl
        idempotency::tells_who_claimed_a_call  idempotency::every_record_is_listed
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (FewMillisecondsAreNoTtl, "expiry::a_few_milliseconds_are_kept"),
    (TtlWrapsAround, "expiry::the_longest_ttl_is_kept"),
    (OldTimersTakeNewEntries, "
        try_replace::brings_a_longer_ttl  try_expire::lengthens  expiry::an_old_end_takes_no_new_entry
        set::drops_a_nearer_end  sliding::a_read_prolongs  sliding::a_read_of_many_prolongs
        sliding::a_read_prolongs_up_to_the_absolute_end  leases::are_kept_by_renewal
        idempotency::long_work_keeps_its_claim  idempotency::an_answer_outlives_its_claim
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (SweepTakesNeighbours, "
        expiry::one_end_takes_no_neighbour  batches::get_many_answers_in_order  batches::set_many_gives_each_its_own_end
        scan::shows_nothing_expired  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
];
