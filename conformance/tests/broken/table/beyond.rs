use crate::broken::Mistake::{self, *};

/// Revisions, hints, the cache, and what is about the whole store.
#[rustfmt::skip]
pub(super) const ROWS: &[(Mistake, &str)] = &[
    // Revisions
    (RevisionsRepeat, "
        revisions::rise_across_replacement  revisions::rise_across_removal  revisions::rise_across_expiry
        revisions::rise_across_sets  revisions::rise_for_all_handles  revisions::are_never_given_twice
        revisions::come_in_the_order_of_owners  revisions::come_in_the_order_of_swaps
        batches::set_many_numbers_its_writes_in_order  leases::have_rising_tokens
        idempotency::claims_have_rising_tokens  fence::goes_by_the_tokens_of_leases
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (RevisionsGoBackAfterRemoval, "
        revisions::rise_across_removal  revisions::rise_across_sets  revisions::rise_for_all_handles
        revisions::are_never_given_twice  revisions::come_in_the_order_of_owners  leases::have_rising_tokens
        idempotency::claims_have_rising_tokens  fence::goes_by_the_tokens_of_leases
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (RevisionsGoBackAfterExpiry, "
        revisions::rise_across_expiry  histories::of_the_primitives_have_an_order
        histories::of_the_whole_store_have_an_order
    "),
    (RevisionsAreCountedByHandle, "
        revisions::rise_for_all_handles  leases::have_rising_tokens  idempotency::claims_have_rising_tokens
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (RevisionsAreMilliseconds, "
        revisions::rise_across_replacement  revisions::rise_across_removal  revisions::rise_across_sets
        revisions::rise_for_all_handles  revisions::are_never_given_twice  revisions::come_in_the_order_of_owners
        revisions::come_in_the_order_of_swaps  batches::set_many_numbers_its_writes_in_order  leases::have_rising_tokens
        idempotency::claims_have_rising_tokens  fence::goes_by_the_tokens_of_leases
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (RevisionsOfSetsAreTheirOwn, "
        revisions::rise_across_sets  batches::set_many_numbers_its_writes_in_order
        histories::of_the_whole_store_have_an_order
    "),
    (RevisionsAreMintedBeforeTheWrite, "revisions::come_in_the_order_of_owners"),
    (RevisionsAreNearTheLimit, "revisions::leave_room_to_rise"),
    (RevisionsOfABatchAreTurnedAround, "batches::set_many_numbers_its_writes_in_order"),

    // Hints
    (HintsAreNeverSent, "
        hints::a_replacement_is_heard  hints::a_removal_is_heard  hints::a_set_is_heard
        hints::a_removal_of_any_value_is_heard  hints::each_of_a_batch_is_heard  hints::another_handle_hears
        hints::all_who_listen_hear  hints::who_stops_listening_disturbs_nobody
        hints::who_does_not_read_holds_nobody_up  hints::name_only_what_is_listened_for
        hints::a_prefix_hears_its_keys  hints::a_prefix_names_only_its_keys
        hints::the_empty_prefix_hears_all_of_the_namespace  cancellation::watch_may_be_dropped
    "),
    (NoHintAtAReplacement, "
        hints::a_replacement_is_heard  hints::another_handle_hears  hints::all_who_listen_hear
        hints::who_stops_listening_disturbs_nobody  hints::who_does_not_read_holds_nobody_up
        hints::name_only_what_is_listened_for  hints::a_prefix_hears_its_keys  hints::a_prefix_names_only_its_keys
        hints::the_empty_prefix_hears_all_of_the_namespace  cancellation::watch_may_be_dropped
    "),
    (NoHintAtARemoval, "
        hints::a_removal_is_heard  hints::a_removal_of_any_value_is_heard  hints::each_of_a_batch_is_heard
    "),
    (HintsComeAtAddsAndNotAtRemovals, "
        hints::a_removal_is_heard  hints::a_removal_of_any_value_is_heard  hints::each_of_a_batch_is_heard
    "),
    (NoHintAtASet, "hints::a_set_is_heard"),
    (NoHintAtABatch, "hints::each_of_a_batch_is_heard"),
    (NoHintAtARemovalOfABatch, "hints::each_of_a_batch_is_heard"),
    (AnythingAtFirstAndNothingAfter, "
        hints::a_replacement_is_heard  hints::a_removal_is_heard  hints::a_set_is_heard
        hints::a_removal_of_any_value_is_heard  hints::each_of_a_batch_is_heard  hints::another_handle_hears
        hints::all_who_listen_hear  hints::who_stops_listening_disturbs_nobody
        hints::who_does_not_read_holds_nobody_up  hints::name_only_what_is_listened_for
        hints::a_prefix_hears_its_keys  hints::a_prefix_names_only_its_keys
        hints::the_empty_prefix_hears_all_of_the_namespace  cancellation::watch_may_be_dropped
    "),
    (HintsStayInTheirHandle, "hints::another_handle_hears"),
    (OnlyTheLastListenerHears, "hints::all_who_listen_hear"),
    (ListenerThatLeavesTakesTheOthersAlong, "hints::who_stops_listening_disturbs_nobody"),
    (UnreadHintsBlockWriters, "hints::who_does_not_read_holds_nobody_up"),
    (HintsNameEveryKey, "hints::each_of_a_batch_is_heard hints::name_only_what_is_listened_for"),
    (PrefixHintsNameEveryKey, "hints::a_prefix_names_only_its_keys"),
    (PrefixHintsLeaveTheNamespace, "hints::the_empty_prefix_hears_all_of_the_namespace"),
    (PrefixHearsNothing, "
        hints::a_prefix_hears_its_keys  hints::a_prefix_names_only_its_keys
        hints::the_empty_prefix_hears_all_of_the_namespace
    "),
    (UnsupportedHintsNeverCome, "
        hints::without_them_watch_is_unsupported  hints::without_them_watch_prefix_is_unsupported
    "),
    (UnsupportedHintsHang, "hints::without_them_watch_is_unsupported hints::without_them_watch_prefix_is_unsupported"),
    (UnsupportedHintsLeaveADoubt, "
        hints::without_them_watch_is_unsupported  hints::without_them_watch_prefix_is_unsupported
    "),

    // Cache operations
    (SetWritesOnlyWhereNothingIs, "
        revisions::rise_across_sets  set::writes_whatever_is_there  set::is_a_value_like_any_other
        set::drops_a_nearer_end  set::drops_a_farther_end  set::ends_what_never_ended
        set::the_primitives_take_what_never_ends  batches::set_many_writes_each
        batches::set_many_leaves_the_last_of_two  batches::set_many_numbers_its_writes_in_order
        histories::of_the_whole_store_have_an_order
    "),
    (SetKeepsTheOldEnd, "set::drops_a_nearer_end set::drops_a_farther_end histories::of_the_whole_store_have_an_order"),
    (SetWritesAHeader, "
        revisions::rise_across_sets  set::writes_whatever_is_there  set::is_a_value_like_any_other
        set::the_primitives_take_what_never_ends  batches::set_many_numbers_its_writes_in_order
        sliding::try_replace_brings_a_fixed_end  sliding::try_expire_brings_a_fixed_end  scan::shows_nothing_removed
        histories::of_the_whole_store_have_an_order
    "),
    (NeverIsAYear, "set::never_means_no_end batches::set_many_gives_each_its_own_end"),
    (NeverIsNotLiveForThePrimitives, "
        set::writes_whatever_is_there  set::never_means_no_end  set::the_primitives_take_what_never_ends
        histories::of_the_whole_store_have_an_order
    "),
    (RemoveAnyAlwaysSaysApplied, "
        remove::of_an_absent_key_is_not_applied  remove::of_an_expired_key_is_not_applied
        batches::remove_many_answers_in_order  histories::of_the_whole_store_have_an_order
    "),
    (RemoveAnyNeverApplies, "
        revisions::rise_across_sets  hints::a_removal_of_any_value_is_heard  hints::each_of_a_batch_is_heard
        remove::takes_whatever_is_there
        batches::remove_many_answers_in_order  batches::of_a_thousand_are_whole  scan::shows_nothing_removed
        scan::misses_nothing_while_others_remove  histories::of_the_whole_store_have_an_order
    "),
    (GetManySkipsWhatIsAbsent, "
        batches::get_many_answers_in_order  batches::set_many_gives_each_its_own_end
        batches::set_many_is_refused_whole  batches::remove_many_answers_in_order
        histories::of_the_whole_store_have_an_order
    "),
    (GetManySorts, "
        batches::get_many_answers_in_order  batches::set_many_gives_each_its_own_end  batches::of_a_thousand_are_whole
        histories::of_the_whole_store_have_an_order
    "),
    (GetManyTellsNoTimeLeft, "
        batches::get_many_tells_the_time_left  idempotency::every_record_is_listed
        histories::of_the_whole_store_have_an_order
    "),
    (SetManyKeepsTheFirstOfTwo, "
        batches::set_many_leaves_the_last_of_two  batches::set_many_numbers_its_writes_in_order
    "),
    (SetManyGivesAllOneEnd, "batches::set_many_gives_each_its_own_end histories::of_the_whole_store_have_an_order"),
    (SetManyStopsAtWhatIsTooLong, "batches::set_many_is_refused_whole"),
    (SetManyGivesOneRevision, "
        batches::set_many_writes_each  batches::set_many_leaves_the_last_of_two
        batches::set_many_numbers_its_writes_in_order  batches::of_a_thousand_are_whole  scan::finds_every_one_of_many
        scan::finds_only_its_prefix  scan::takes_wildcards_as_letters  scan::tells_case_apart
        scan::gives_keys_as_they_were_written  scan::with_the_empty_prefix_stays_in_the_namespace
        scan::shows_nothing_removed  scan::misses_nothing_while_others_remove
        histories::of_the_whole_store_have_an_order
    "),
    (RemoveManySaysAppliedTwice, "batches::remove_many_answers_in_order"),
    (EmptyBatchesFail, "batches::of_nothing_are_answered_with_nothing"),
    (BatchesAreCut, "batches::of_a_thousand_are_whole"),

    // Sliding expiry
    (NothingSlides, "
        sliding::a_read_prolongs  sliding::a_read_of_many_prolongs  sliding::a_read_prolongs_up_to_the_absolute_end
        sliding::a_read_tells_the_end_that_it_brings  histories::of_the_whole_store_have_an_order
    "),
    (ReadsOfManyDoNotSlide, "sliding::a_read_of_many_prolongs"),
    (SlidingNeverEnds, "
        sliding::without_reads_it_ends  sliding::try_add_prolongs_nothing
        sliding::a_read_tells_the_end_that_it_brings  histories::of_the_whole_store_have_an_order
    "),
    (AbsoluteEndLoses, "sliding::the_absolute_end_wins histories::of_the_whole_store_have_an_order"),
    (IdleTimeIsForgotten, "sliding::without_reads_it_ends_before_the_absolute_end"),
    (ReplaceKeepsSliding, "sliding::try_replace_brings_a_fixed_end histories::of_the_whole_store_have_an_order"),
    (AddsThatLoseSlide, "sliding::try_add_prolongs_nothing histories::of_the_whole_store_have_an_order"),
    (ReadsTellTheOldEnd, "sliding::a_read_tells_the_end_that_it_brings histories::of_the_whole_store_have_an_order"),
    (ExpireKeepsSliding, "sliding::try_expire_brings_a_fixed_end"),

    // Scan
    (ScanStopsAfterAPage, "scan::finds_every_one_of_many scan::misses_nothing_while_others_remove"),
    (ScanIgnoresThePrefix, "
        scan::finds_only_its_prefix  scan::takes_wildcards_as_letters  scan::tells_case_apart
        scan::gives_keys_as_they_were_written
    "),
    (ScanTakesWildcards, "scan::takes_wildcards_as_letters"),
    (ScanFoldsCase, "scan::tells_case_apart"),
    (ScanLeavesTheNamespace, "scan::with_the_empty_prefix_stays_in_the_namespace"),
    (ScanShowsWhatExpired, "scan::shows_nothing_expired"),
    (ScanShowsWhatWasRemoved, "
        scan::shows_nothing_removed  leases::leave_nothing_behind  idempotency::leaves_only_its_record_behind
    "),
    (ScanShowsEscapedKeys, "
        keys::case_counts  keys::unicode_is_not_normalized  keys::unicode_comes_back  keys::the_longest_are_told_apart
        keys::quotes_and_slashes_are_letters  keys::drawn_at_random_stay_apart  scan::takes_wildcards_as_letters
        scan::gives_keys_as_they_were_written
    "),
    (ScanCountsFromTheStart, "scan::misses_nothing_while_others_remove"),
    (ForeignCursorsEndTheScan, "scan::refuses_a_foreign_cursor"),

    // Handles, errors, cancellation
    (EachHandleHasItsOwnData, "
        revisions::rise_for_all_handles  hints::another_handle_hears  handles::of_one_namespace_share_the_data
        handles::see_each_others_writes_at_once  handles::exclude_each_other  handles::outlive_each_other
        leases::have_one_holder_at_a_time  leases::have_rising_tokens  leases::are_released_by_their_holder_only
        leases::are_lost_before_another_gets_them  leases::are_kept_by_renewal  leases::go_to_who_waits_after_a_release
        leases::are_kept_after_their_release_if_asked  leases::tell_who_holds_them
        idempotency::runs_the_work_once_among_many  idempotency::replays_the_first_answer
        idempotency::another_operation_and_another_payload_are_refused  idempotency::scopes_never_meet
        idempotency::a_late_completion_overwrites_nothing  idempotency::a_late_failure_frees_nothing
        idempotency::long_work_keeps_its_claim  idempotency::after_a_crash_the_work_runs_again
        idempotency::the_outcome_is_unknown_after_a_crash_if_asked  idempotency::an_unknown_outcome_is_for_operators
        idempotency::who_waits_replays_the_answer  idempotency::who_waits_claims_what_is_given_up
        idempotency::an_answer_lives_for_its_ttl  idempotency::an_answer_outlives_its_claim
        idempotency::an_answer_of_any_length_is_the_only_one  idempotency::claims_have_rising_tokens
        idempotency::tells_who_claimed_a_call  idempotency::every_record_is_listed
        histories::of_the_primitives_have_an_order  histories::of_the_whole_store_have_an_order
    "),
    (DroppedHandleTakesTheData, "handles::outlive_each_other"),
    (NameIsASentence, "handles::say_what_they_are"),
    (CapabilitiesDifferByHandle, "handles::say_what_they_are"),
    (ErrorsShowTheValue, "errors::show_no_value"),
    (ErrorsNameNoOperation, "errors::name_the_operation_and_the_store"),
    (ErrorsNameNoStore, "errors::name_the_operation_and_the_store"),
    (LockStaysTakenWhenDropped, "
        cancellation::try_add_may_be_dropped  cancellation::try_replace_may_be_dropped
        cancellation::try_remove_may_be_dropped  cancellation::try_expire_may_be_dropped
        cancellation::get_may_be_dropped  cancellation::watch_may_be_dropped  cancellation::set_may_be_dropped
        cancellation::remove_may_be_dropped  cancellation::batches_may_be_dropped  cancellation::scan_may_be_dropped
        cancellation::hundreds_may_be_dropped  leases::are_given_back_when_their_acquisition_is_dropped
        idempotency::a_begin_that_is_dropped_is_given_back
    "),
    (PermitIsGoneWhenDropped, "cancellation::hundreds_may_be_dropped"),
];
