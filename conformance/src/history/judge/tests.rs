use std::time::Duration;

use leasehold_core::{Expiry, Ttl};

use super::*;
use crate::history::{Answer, Call, Exchange, FoundEntry, SetItem, Stamp};

/// An operation of a client within milliseconds of the recording; no second one if it never returned.
struct Line(u32, u64, Option<u64>, Call, Answer);

/// A history in which operations whose times touch are concurrent.
fn history(tolerance: Tolerance, lines: Vec<Line>) -> History {
    let mut moments: Vec<(u64, bool, usize)> = Vec::new();
    for (index, Line(_, called, returned, ..)) in lines.iter().enumerate() {
        moments.push((*called, false, index));
        moments.extend(returned.map(|returned| (returned, true, index)));
    }
    moments.sort_unstable();
    let stamp = |nanos: u64, returned: bool, index: usize| {
        let order = moments.iter().position(|moment| *moment == (nanos, returned, index)).unwrap() as u64;
        Stamp { nanos: nanos * 1_000_000, order }
    };
    let exchange = |(index, line): (usize, &Line)| Exchange {
        client: line.0,
        called: stamp(line.1, false, index),
        returned: line.2.map(|returned| stamp(returned, true, index)),
        call: line.3.clone(),
        answer: line.4.clone(),
    };
    History::new(tolerance, lines.iter().enumerate().map(exchange).collect())
}

const DECLARED: Tolerance = Tolerance { early: Duration::from_millis(5), late: Duration::from_millis(250) };

#[track_caller]
fn fine(tolerance: Tolerance, lines: Vec<Line>) {
    match judge(&history(tolerance, lines)).verdict {
        Verdict::Ok => {}
        Verdict::Violation(violation) => panic!("{violation}"),
        Verdict::Undecided(undecided) => panic!("{undecided}"),
    }
}

/// Returns how many operations the shortest failing prefix has.
#[track_caller]
fn wrong(tolerance: Tolerance, lines: Vec<Line>) -> usize {
    match judge(&history(tolerance, lines)).verdict {
        Verdict::Violation(violation) => violation.prefix.exchanges.len(),
        other => panic!("{other:?}"),
    }
}

fn line(client: u32, within: (u64, u64), call: Call, answer: Answer) -> Line {
    Line(client, within.0, Some(within.1), call, answer)
}

fn unheard(client: u32, called: u64, call: Call) -> Line {
    Line(client, called, None, call, Answer::Missing)
}

fn doubtful(client: u32, within: (u64, u64), call: Call) -> Line {
    line(client, within, call, Answer::ErrorOfUnknownEffect { error: "timeout".into() })
}

fn key() -> String {
    "k".into()
}

fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).unwrap()
}

fn add(value: &str, millis: u64) -> Call {
    Call::TryAdd { key: key(), value: value.into(), ttl: ttl(millis) }
}

fn replace(expected: &str, value: &str, millis: u64) -> Call {
    Call::TryReplace { key: key(), expected: expected.into(), value: value.into(), ttl: ttl(millis) }
}

fn try_remove(expected: &str) -> Call {
    Call::TryRemove { key: key(), expected: expected.into() }
}

fn expire(expected: &str, millis: u64) -> Call {
    Call::TryExpire { key: key(), expected: expected.into(), ttl: ttl(millis) }
}

fn get() -> Call {
    Call::Get { key: key() }
}

fn remove() -> Call {
    Call::Remove { key: key() }
}

fn set(value: &str, expiry: Expiry) -> Call {
    Call::Set(item("k", value, expiry))
}

fn item(key: &str, value: &str, expiry: Expiry) -> SetItem {
    SetItem { key: key.into(), value: value.into(), expiry }
}

fn added(revision: u64) -> Answer {
    Answer::Added { revision: Some(revision) }
}

fn replaced(revision: u64) -> Answer {
    Answer::Replaced { revision: Some(revision) }
}

fn written(revision: u64) -> Answer {
    Answer::Written { revision: Some(revision) }
}

fn entry(value: &str, millis: impl Into<Option<u64>>) -> FoundEntry {
    FoundEntry { value: value.into(), time_left_nanos: millis.into().map(|millis| millis * 1_000_000) }
}

fn found(value: &str, millis: impl Into<Option<u64>>) -> Answer {
    Answer::Found(entry(value, millis))
}

fn exists(value: &str, millis: u64) -> Answer {
    Answer::Exists(entry(value, millis))
}

#[test]
fn what_one_client_sees_of_a_store_that_works_is_fine() {
    fine(
        Tolerance::EXACT,
        vec![
            line(0, (0, 0), get(), Answer::Absent),
            line(0, (1, 1), add("a", 400), added(7)),
            line(0, (2, 2), add("b", 400), exists("a", 399)),
            line(0, (3, 3), replace("b", "c", 100), Answer::NotApplied),
            line(0, (4, 4), replace("a", "c", 100), replaced(8)),
            line(0, (5, 5), expire("c", 50), Answer::Applied),
            line(0, (54, 54), get(), found("c", 1)),
            line(0, (55, 55), get(), Answer::Absent),
            line(0, (55, 55), try_remove("c"), Answer::NotApplied),
            line(0, (56, 56), set("d", Expiry::Never), written(9)),
            line(0, (90_000, 90_000), get(), found("d", None)),
            line(0, (90_001, 90_001), try_remove("d"), Answer::Applied),
            line(0, (90_002, 90_002), remove(), Answer::NotApplied),
        ],
    );
}

#[test]
fn concurrent_operations_may_take_either_order() {
    for answer in [Answer::Absent, found("a", 400)] {
        fine(DECLARED, vec![line(0, (0, 10), add("a", 400), added(1)), line(1, (5, 6), get(), answer.clone())]);
        // Intervals that touch are concurrent.
        fine(DECLARED, vec![line(0, (0, 10), add("a", 400), added(1)), line(1, (10, 11), get(), answer)]);
    }
    assert_eq!(
        wrong(DECLARED, vec![line(0, (0, 10), add("a", 400), added(1)), line(1, (11, 12), get(), Answer::Absent)]),
        2
    );
}

#[test]
fn the_order_of_the_record_tells_apart_what_the_clock_does_not() {
    let mut history =
        history(DECLARED, vec![line(0, (5, 5), add("a", 400), added(1)), line(1, (5, 5), get(), Answer::Absent)]);
    assert_eq!(judge(&history).verdict, Verdict::Ok);
    for (order, exchange) in history.exchanges.iter_mut().enumerate() {
        exchange.called.order = order as u64 * 2;
        exchange.returned.as_mut().unwrap().order = order as u64 * 2 + 1;
    }
    assert!(matches!(judge(&history).verdict, Verdict::Violation(_)));
}

#[test]
fn a_grant_is_not_ordered_before_the_expiry_that_allowed_it() {
    let grants = |second: (u64, u64)| {
        vec![
            line(0, (0, 1), add("a", 400), added(1)),
            line(1, (40, 500), get(), Answer::Absent),
            line(2, second, add("b", 400), added(2)),
        ]
    };
    assert_eq!(wrong(DECLARED, grants((45, 50))), 2 + 1, "the get has not returned, but the second grant has");
    fine(DECLARED, grants((45, 500)));
}

#[test]
fn an_entry_does_not_end_early() {
    let lives = |until: u64| vec![line(0, (0, 1), add("a", 400), added(1)), line(0, (2, until), get(), Answer::Absent)];
    wrong(DECLARED, lives(394));
    fine(DECLARED, lives(395));
    wrong(Tolerance::EXACT, lives(399));
    fine(Tolerance::EXACT, lives(400));
    // Prolonging moves the end.
    let mut prolonged = lives(400);
    prolonged.insert(1, line(1, (1, 1), expire("a", 900), Answer::Applied));
    wrong(DECLARED, prolonged);
}

#[test]
fn a_write_is_no_sooner_than_what_came_before_it() {
    // The get came first, or it had found it.
    let after = |gone| {
        vec![
            line(0, (0, 100), add("a", 100), added(1)),
            line(1, (50, 60), get(), Answer::Absent),
            line(1, (gone, gone), get(), Answer::Absent),
        ]
    };
    wrong(Tolerance::EXACT, after(149));
    fine(Tolerance::EXACT, after(150));
    let after = |gone| {
        vec![
            line(0, (0, 1), set("a", Expiry::Never), written(1)),
            line(0, (2, 190), expire("a", 100), Answer::Applied),
            line(1, (50, 60), get(), found("a", None)),
            line(1, (gone, gone), get(), Answer::Absent),
        ]
    };
    wrong(Tolerance::EXACT, after(149));
    fine(Tolerance::EXACT, after(150));
    // So did the expiry that made room for it.
    let after = |gone| {
        vec![
            line(0, (0, 0), add("a", 100), added(1)),
            line(0, (1, 190), add("b", 100), added(2)),
            line(1, (130, 131), get(), found("b", 100)),
            line(1, (gone, gone), get(), Answer::Absent),
        ]
    };
    wrong(Tolerance::EXACT, after(199));
    fine(Tolerance::EXACT, after(200));
}

#[test]
fn an_entry_does_not_end_late() {
    let lives = |from: u64| vec![line(0, (0, 1), add("a", 400), added(1)), line(0, (from, from), get(), found("a", 1))];
    fine(DECLARED, lives(650));
    wrong(DECLARED, lives(651));
    wrong(Tolerance::EXACT, lives(401));
    // At the deadline it has ended.
    let at_once = |from| vec![line(0, (0, 0), add("a", 400), added(1)), line(0, (from, from), get(), found("a", 1))];
    wrong(Tolerance::EXACT, at_once(400));
    fine(Tolerance::EXACT, at_once(399));
    // Being found proves that it had not ended, so what overlaps an earlier look cannot have found it gone.
    wrong(
        Tolerance::EXACT,
        vec![
            line(0, (0, 50), add("a", 400), added(1)),
            line(0, (430, 430), get(), found("a", 1)),
            line(0, (430, 430), get(), Answer::Absent),
            line(0, (431, 431), get(), found("a", 1)),
        ],
    );
}

#[test]
fn the_expired_are_not_revived() {
    for (call, answer) in [(expire("a", 400), Answer::Applied), (replace("a", "b", 400), replaced(2))] {
        let revived = vec![line(0, (0, 1), add("a", 100), added(1)), line(1, (352, 353), call.clone(), answer.clone())];
        wrong(DECLARED, revived);
        let known_to_be_dead = vec![
            line(0, (0, 1), add("a", 100), added(1)),
            line(1, (200, 201), get(), Answer::Absent),
            line(1, (202, 203), call, answer),
        ];
        assert_eq!(wrong(DECLARED, known_to_be_dead), 3);
    }
}

#[test]
fn of_two_that_add_one_wins() {
    let both = |second| vec![line(0, (0, 10), add("a", 400), added(1)), line(1, (5, 15), add("b", 400), second)];
    wrong(DECLARED, both(added(2)));
    fine(DECLARED, both(exists("a", 399)));
}

#[test]
fn of_two_that_replace_one_wins() {
    let both = |second| {
        vec![
            line(0, (0, 1), add("a", 400), added(1)),
            line(0, (2, 10), replace("a", "b", 400), replaced(2)),
            line(1, (2, 10), replace("a", "c", 400), second),
        ]
    };
    assert_eq!(wrong(DECLARED, both(replaced(3))), 3);
    fine(DECLARED, both(Answer::NotApplied));
}

#[test]
fn what_is_removed_is_what_was_expected() {
    let removed = |expected, answer| {
        vec![line(0, (0, 1), add("a", 400), added(1)), line(1, (2, 3), try_remove(expected), answer)]
    };
    fine(DECLARED, removed("a", Answer::Applied));
    wrong(DECLARED, removed("b", Answer::Applied));
    fine(DECLARED, removed("b", Answer::NotApplied));
    wrong(DECLARED, removed("a", Answer::NotApplied));
}

#[test]
fn not_applied_leaves_open_whether_another_value_was_there_or_none() {
    let after = |answer| {
        vec![
            line(0, (0, 0), add("a", 100), added(1)),
            line(1, (99, 101), try_remove("b"), Answer::NotApplied),
            line(2, (99, 101), get(), answer),
        ]
    };
    fine(Tolerance::EXACT, after(found("a", 1)));
    fine(Tolerance::EXACT, after(Answer::Absent));
}

#[test]
fn the_time_left_is_that_of_the_entry() {
    let says = |left: Option<u64>| {
        vec![line(0, (0, 1), add("a", 400), added(1)), line(0, (100, 101), get(), found("a", left))]
    };
    fine(DECLARED, says(Some(300)));
    for left in [None, Some(0), Some(293), Some(552), Some(90_000)] {
        wrong(DECLARED, says(left));
    }
    for left in [298, 299, 300, 301] {
        let exact = (299..=301).contains(&left);
        if exact {
            fine(Tolerance::EXACT, says(Some(left)));
        } else {
            wrong(Tolerance::EXACT, says(Some(left)));
        }
    }
    wrong(DECLARED, vec![line(0, (0, 1), set("a", Expiry::Never), written(1)), line(0, (2, 3), get(), found("a", 5))]);
    // An entry that is served late has some time left all the same.
    let late = |left| vec![line(0, (0, 1), add("a", 400), added(1)), line(0, (600, 600), get(), found("a", left))];
    fine(DECLARED, late(1));
    wrong(DECLARED, late(0));
    // What is handed back by a try_add that found it, too.
    wrong(DECLARED, vec![line(0, (0, 1), add("a", 400), added(1)), line(0, (2, 3), add("b", 9), exists("a", 9_000))]);
}

#[test]
fn revisions_rise_across_removal_and_expiry() {
    let across = |gone: Line, second: u64| {
        vec![line(0, (0, 1), add("a", 400), added(5)), gone, line(1, (1_000, 1_001), add("b", 400), added(second))]
    };
    let removed = || line(0, (2, 3), try_remove("a"), Answer::Applied);
    let expired = || line(0, (900, 901), get(), Answer::Absent);
    for second in [4, 5] {
        assert_eq!(wrong(DECLARED, across(removed(), second)), 3);
        wrong(DECLARED, across(expired(), second));
    }
    fine(DECLARED, across(removed(), 6));
    fine(DECLARED, across(expired(), 6));
    // A store that promises none is not held to any.
    let none = || Answer::Written { revision: None };
    fine(DECLARED, (0..3).map(|at| line(0, (at, at), set("a", Expiry::Never), none())).collect());
}

#[test]
fn a_write_that_nobody_heard_of_has_a_revision_too() {
    let after = |third: u64| {
        vec![
            line(0, (0, 1), set("a", Expiry::Never), written(5)),
            doubtful(1, (2, 3), set("b", Expiry::Never)),
            line(0, (4, 5), get(), found("b", None)),
            line(0, (6, 7), set("c", Expiry::Never), written(third)),
        ]
    };
    wrong(DECLARED, after(6));
    fine(DECLARED, after(7));
}

#[test]
fn an_operation_in_doubt_may_happen_late_or_never_and_only_once() {
    for doubt in [doubtful(0, (0, 1), add("a", 400)), unheard(0, 0, add("a", 400))] {
        fine(
            DECLARED,
            vec![doubt, line(1, (100, 101), get(), Answer::Absent), line(1, (500, 501), get(), found("a", 399))],
        );
    }
    let doubt = || doubtful(0, (0, 1), add("a", 400));
    fine(DECLARED, vec![doubt(), line(1, (900, 901), add("b", 400), added(1))]);
    // It did happen, and holds against the next.
    wrong(
        DECLARED,
        vec![doubt(), line(1, (10, 11), get(), found("a", 395)), line(1, (20, 21), add("b", 400), added(1))],
    );
    // It happened, was undone, and cannot happen again.
    wrong(
        DECLARED,
        vec![
            doubt(),
            line(1, (10, 11), get(), found("a", 395)),
            line(1, (12, 13), try_remove("a"), Answer::Applied),
            line(1, (14, 15), get(), found("a", 395)),
        ],
    );
    // It cannot happen before it was asked for.
    wrong(DECLARED, vec![line(1, (0, 1), get(), found("a", 395)), doubtful(0, (2, 3), add("a", 400))]);
    // One that removes may or may not have.
    for answer in [Answer::Absent, found("a", 380)] {
        fine(
            DECLARED,
            vec![
                line(0, (0, 1), add("a", 400), added(1)),
                doubtful(0, (2, 3), try_remove("a")),
                line(1, (20, 21), get(), answer),
            ],
        );
    }
}

#[test]
fn an_error_without_effect_has_none() {
    let refused = line(0, (0, 1), set("a", Expiry::Never), Answer::ErrorWithoutEffect { error: "unavailable".into() });
    assert_eq!(wrong(DECLARED, vec![refused, line(1, (2, 3), get(), found("a", None))]), 1, "it is not in the prefix");
}

#[test]
fn a_get_makes_a_sliding_entry_live_on_up_to_its_absolute_end() {
    let lives = |expiry, looks: Vec<(u64, Answer)>| {
        let mut lines = vec![line(0, (0, 0), set("a", expiry), written(1))];
        lines.extend(looks.into_iter().map(|(at, answer)| line(0, (at, at), get(), answer)));
        lines
    };
    let sliding = Expiry::Sliding(ttl(100));
    fine(
        Tolerance::EXACT,
        lives(
            sliding,
            vec![(80, found("a", 100)), (160, found("a", 100)), (259, found("a", 100)), (359, Answer::Absent)],
        ),
    );
    wrong(Tolerance::EXACT, lives(sliding, vec![(80, found("a", 100)), (160, Answer::Absent)]));
    wrong(Tolerance::EXACT, lives(sliding, vec![(80, found("a", 20))]));
    wrong(Tolerance::EXACT, lives(sliding, vec![(100, found("a", 100))]));

    let capped = Expiry::SlidingUntil { idle: ttl(100), at_most: ttl(150) };
    fine(Tolerance::EXACT, lives(capped, vec![(80, found("a", 70)), (149, found("a", 1)), (150, Answer::Absent)]));
    wrong(Tolerance::EXACT, lives(capped, vec![(80, found("a", 100))]));
    wrong(Tolerance::EXACT, lives(capped, vec![(80, found("a", 70)), (150, found("a", 1))]));
    wrong(Tolerance::EXACT, lives(capped, vec![(80, found("a", 70)), (149, Answer::Absent)]));

    // Only a get does.
    let added = |then| {
        let mut lines = lives(sliding, Vec::new());
        lines.push(line(0, (80, 80), add("b", 100), exists("a", 20)));
        lines.push(line(0, (100, 100), get(), then));
        lines
    };
    fine(Tolerance::EXACT, added(Answer::Absent));
    wrong(Tolerance::EXACT, added(found("a", 100)));

    let fixed = Expiry::After(ttl(100));
    wrong(Tolerance::EXACT, lives(fixed, vec![(80, found("a", 20)), (101, found("a", 20))]));
}

#[test]
fn a_get_that_failed_may_have_made_a_sliding_entry_live_on() {
    let after = |failure: Answer, answer| {
        vec![
            line(0, (0, 0), set("a", Expiry::Sliding(ttl(100))), written(1)),
            line(1, (80, 80), get(), failure),
            line(0, (150, 150), get(), answer),
        ]
    };
    let unknown = || Answer::ErrorOfUnknownEffect { error: "timeout".into() };
    let none = || Answer::ErrorWithoutEffect { error: "unavailable".into() };
    fine(Tolerance::EXACT, after(unknown(), found("a", 100)));
    fine(Tolerance::EXACT, after(unknown(), Answer::Absent));
    wrong(Tolerance::EXACT, after(none(), found("a", 100)));
}

#[test]
fn a_new_end_replaces_a_sliding_one() {
    fine(
        Tolerance::EXACT,
        vec![
            line(0, (0, 0), set("a", Expiry::Sliding(ttl(100))), written(1)),
            line(0, (1, 1), expire("a", 50), Answer::Applied),
            line(0, (40, 40), get(), found("a", 11)),
            line(0, (51, 51), get(), Answer::Absent),
        ],
    );
}

#[test]
fn the_items_of_a_batch_are_operations_of_their_own() {
    let keys = || vec!["k".to_owned(), "other".to_owned()];
    let batch = |entries| line(1, (2, 3), Call::GetMany { keys: keys() }, Answer::ManyFound(entries));
    let first = || line(0, (0, 1), add("a", 400), added(1));
    fine(DECLARED, vec![first(), batch(vec![Some(entry("a", 398)), None])]);
    wrong(DECLARED, vec![first(), batch(vec![None, None])]);
    wrong(DECLARED, vec![first(), batch(vec![Some(entry("a", 398)), Some(entry("a", 398))])]);
    // Half of a batch may be seen.
    let never = |key: &str, value: &str| item(key, value, Expiry::Never);
    fine(
        DECLARED,
        vec![
            line(
                0,
                (0, 9),
                Call::SetMany { items: vec![never("k", "a"), never("other", "b")] },
                Answer::ManyWritten(vec![Some(1); 2]),
            ),
            line(1, (2, 5), Call::GetMany { keys: keys() }, Answer::ManyFound(vec![None, Some(entry("b", None))])),
        ],
    );
    // Of two items with one key the last remains.
    let twice = |then| {
        let items = vec![never("k", "a"), never("k", "b")];
        vec![
            line(0, (0, 1), Call::SetMany { items }, Answer::ManyWritten(vec![None, None])),
            line(0, (2, 3), get(), found(then, None)),
        ]
    };
    fine(DECLARED, twice("b"));
    assert_eq!(wrong(DECLARED, twice("a")), 2);
    fine(
        DECLARED,
        vec![first(), line(0, (2, 3), Call::RemoveMany { keys: keys() }, Answer::ManyRemoved(vec![true, false]))],
    );
    wrong(
        DECLARED,
        vec![first(), line(0, (2, 3), Call::RemoveMany { keys: keys() }, Answer::ManyRemoved(vec![true, true]))],
    );
    // Of a batch in doubt any part may have happened.
    for (one, other) in [(None, Some("b")), (Some("a"), None), (None, None), (Some("a"), Some("b"))] {
        let entries = [one, other].map(|value| value.map(|value| entry(value, None))).to_vec();
        fine(
            DECLARED,
            vec![
                doubtful(0, (0, 1), Call::SetMany { items: vec![never("k", "a"), never("other", "b")] }),
                batch(entries),
            ],
        );
    }
}

#[test]
fn an_answer_that_is_none_to_the_call_is_a_violation() {
    for answer in [Answer::ManyFound(vec![None]), Answer::Absent, added(1)] {
        let keys = vec!["k".to_owned(), "other".to_owned()];
        let history = history(
            DECLARED,
            vec![line(0, (0, 1), get(), Answer::Absent), line(0, (2, 3), Call::GetMany { keys }, answer)],
        );
        let Verdict::Violation(violation) = judge(&history).verdict else { panic!("an answer to another call passed") };
        assert!(violation.to_string().contains("no answer to the call"), "{violation}");
        assert_eq!(violation.prefix.exchanges, history.exchanges[1..]);
    }
}

#[test]
fn a_search_that_is_given_up_is_no_pass() {
    let lines = (0..6).map(|client| line(client, (0, 10), set("a", Expiry::Never), written(6 - u64::from(client))));
    let history = history(DECLARED, lines.collect());
    assert_eq!(judge(&history).verdict, Verdict::Ok);
    assert!(matches!(judge_within(&history, 3).verdict, Verdict::Undecided(_)));
}

#[test]
fn a_violation_is_shown_as_the_shortest_prefix_that_has_it() {
    let Verdict::Violation(violation) = judge(&history(
        DECLARED,
        vec![
            line(0, (0, 1), add("a", 400), added(1)),
            line(3, (1, 2), Call::Get { key: "other".into() }, Answer::Absent),
            line(1, (40, 500), get(), Answer::Absent),
            line(2, (45, 50), add("b", 400), added(2)),
            line(2, (60, 70), replace("b", "c", 400), replaced(3)),
        ],
    ))
    .verdict
    else {
        panic!("a double grant passed")
    };
    assert_eq!(
        violation.to_string(),
        "\
k: no order of these 3 operations (of 4) explains the last answer
even if an entry expires up to 5ms early, 250ms late
  client 0   ├1─┤
  client 1         ├2───────…
  client 2            ├3─┤

    1  client 0       0.000 … 1.000     ms  try_add(a, 400ms) -> added, revision 1
    2  client 1      40.000 … …         ms  get -> no answer
    3  client 2      45.000 … 50.000    ms  try_add(b, 400ms) -> added, revision 2
"
    );
}

#[test]
fn a_history_comes_back_from_its_json_and_is_judged_the_same() {
    let history = history(
        DECLARED,
        vec![
            line(0, (0, 1), add("a", 400), added(1)),
            line(0, (2, 3), set("b", Expiry::SlidingUntil { idle: ttl(5), at_most: ttl(6) }), written(2)),
            doubtful(1, (2, 3), Call::SetMany { items: vec![item("k", "\0", Expiry::Sliding(ttl(7)))] }),
            unheard(2, 4, Call::RemoveMany { keys: vec!["other".into()] }),
            line(3, (5, 6), get(), found("never written", None)),
        ],
    )
    .with_origin(crate::history::Origin { seed: u64::MAX, round: 3 });
    let json = history.to_json();
    assert_eq!(serde_json::from_str::<History>(&json).unwrap(), history);
    let judgement = replay(&json).unwrap();
    assert_eq!(judgement, judge(&history));
    assert!(matches!(judgement.verdict, Verdict::Violation(_)));

    let json = json.replacen("\"version\": 1", "\"version\": 2", 1);
    assert!(replay(&json).unwrap_err().to_string().contains("version 2, and only 1 is known"));
    assert!(matches!(replay("{}"), Err(ReplayError::Unreadable(_))));
}

/// What a history looks like in a file stays as it is: old files are judged by newer versions.
#[test]
fn the_names_in_a_file_are_fixed() {
    let json = r#"{
        "version": 1,
        "origin": { "seed": 42, "round": 0 },
        "tolerance": { "early_nanos": 5000000, "late_nanos": 250000000 },
        "exchanges": [
            { "client": 0, "called": { "nanos": 0, "order": 0 }, "returned": { "nanos": 10, "order": 1 },
              "call": { "try_add": { "key": "k", "value": "0.1", "ttl_millis": 400 } },
              "answer": { "added": { "revision": 7 } } },
            { "client": 1, "called": { "nanos": 20, "order": 2 }, "returned": null,
              "call": { "set": { "key": "k", "value": "0x00ff", "expiry": { "after_millis": 5 } } },
              "answer": "missing" },
            { "client": 2, "called": { "nanos": 30, "order": 3 }, "returned": { "nanos": 40, "order": 4 },
              "call": { "get": { "key": "k" } },
              "answer": { "found": { "value": "0.1", "time_left_nanos": 399999990 } } }
        ]
    }"#;
    assert_eq!(replay(json).unwrap().verdict, Verdict::Ok);
    assert!(matches!(
        replay(&json.replace("\"0.1\", \"time", "\"0.2\", \"time")).unwrap().verdict,
        Verdict::Violation(_)
    ));
}
