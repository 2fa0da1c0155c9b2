use std::collections::HashSet;

use crate::history::Tolerance;
use crate::history::model::State;
use crate::history::operation::Operation;

/// What a search found out about one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// An order that explains every answer.
    Order,
    /// That there is none.
    NoOrder,
    /// Neither, before the budget was spent.
    Nothing,
}

/// Looks for an order of the operations that keeps to real time and in which each finds what it says it found.
///
/// It is the search of Wing and Gong (J. Parallel Distrib. Comput. 17, 1993) with the memo of Lowe (Concurrency
/// Computat. Pract. Exper. 29, 2017): what can follow depends only on which operations are placed and on the state they
/// left, so no such pair is tried twice. Returns how many pairs it visited too.
pub(super) fn search(operations: &[Operation<'_>], tolerance: Tolerance, budget: usize) -> (Found, usize) {
    let before: Vec<Places> =
        operations.iter().map(|operation| Places::of(operations, |other| other.precedes(operation))).collect();
    let must_happen = Places::of(operations, |operation| operation.returned.is_some());
    // The last pushed is tried first, and what returned first most likely happened first.
    let mut candidates: Vec<usize> = (0..operations.len()).collect();
    candidates.sort_by_key(|&place| std::cmp::Reverse((operations[place].at_latest(), place)));

    let mut visited = HashSet::new();
    let mut open = vec![(Places::none(operations.len()), State::START)];
    while let Some((placed, state)) = open.pop() {
        if placed.include(&must_happen) {
            return (Found::Order, visited.len());
        }
        for &place in &candidates {
            if placed.has(place) || !placed.include(&before[place]) {
                continue;
            }
            let Some(state) = state.after(&operations[place], tolerance) else { continue };
            let placed = placed.with(place);
            let too_late =
                |(place, operation): (usize, &Operation<'_>)| !placed.has(place) && operation.at_latest() < state.floor;
            if operations.iter().enumerate().any(too_late) {
                continue;
            }
            if visited.len() >= budget {
                return (Found::Nothing, visited.len());
            }
            if visited.insert((placed.clone(), state)) {
                open.push((placed, state));
            }
        }
    }
    (Found::NoOrder, visited.len())
}

/// A set of operations, by their places.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Places(Box<[u64]>);

impl Places {
    fn none(of: usize) -> Self {
        Self(vec![0; of.div_ceil(64)].into())
    }

    fn of<'h>(operations: &[Operation<'h>], chosen: impl Fn(&Operation<'h>) -> bool) -> Self {
        let mut places = Self::none(operations.len());
        for place in (0..operations.len()).filter(|&place| chosen(&operations[place])) {
            places.0[place / 64] |= 1 << (place % 64);
        }
        places
    }

    fn has(&self, place: usize) -> bool {
        self.0[place / 64] & 1 << (place % 64) != 0
    }

    fn with(&self, place: usize) -> Self {
        let mut places = self.clone();
        places.0[place / 64] |= 1 << (place % 64);
        places
    }

    fn include(&self, others: &Self) -> bool {
        self.0.iter().zip(&others.0).all(|(here, there)| there & !here == 0)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Expiry, Ttl};

    use super::*;
    use crate::history::operation::{Deed, Moment, Over};
    use crate::history::{Dice, Value};

    const BUDGET: usize = 100_000;

    /// Tries every order, and remembers nothing.
    fn some_order(left: &[Operation<'_>], state: State<'_>) -> bool {
        left.iter().all(|operation| operation.returned.is_none())
            || (0..left.len()).any(|next| {
                let mut rest = left.to_vec();
                let next = rest.remove(next);
                !rest.iter().any(|other| other.precedes(&next))
                    && state.after(&next, Tolerance::EXACT).is_some_and(|state| some_order(&rest, state))
            })
    }

    /// Operations with answers out of thin air: about as many that some order explains as that none does.
    fn operations<'h>(dice: &mut Dice, values: &'h [Value; 2]) -> Vec<Operation<'h>> {
        let mut now = 0;
        let operation = |exchange: usize| {
            let value = &values[dice.below(2) as usize];
            let ttl = Ttl::from_millis(1 + dice.below(3)).unwrap();
            let deed = match dice.below(6) {
                0 => Deed::Found { value, time_left: Some(1_000_000), slides: true },
                1 => Deed::Absent,
                2 => Deed::NotThere { expected: value },
                3 => Deed::Removed { expected: None },
                4 => Deed::Expires { expected: value, ttl },
                _ => {
                    let over = if dice.chance(50) { Over::Nothing } else { Over::Anything };
                    Deed::Written { over, value, expiry: Expiry::After(ttl), revision: Some(1 + dice.below(6)) }
                }
            };
            now += dice.below(2) as i64 * 1_000_000;
            let returned = now + dice.below(4) as i64 * 1_000_000;
            let moment = |at: i64, end: u64| Moment { at, order: at as u64 * 2 + end };
            Operation {
                exchange,
                item: 0,
                called: moment(now, 0),
                returned: (!dice.chance(20)).then(|| moment(returned, 1)),
                deed,
            }
        };
        (0..5).map(operation).collect()
    }

    #[test]
    fn the_memo_and_the_order_of_trying_change_no_verdict() {
        let values = [Value::from("a"), Value::from("b")];
        let mut dice = Dice::new(&[1]);
        let mut orders = 0;
        for case in 0..4_000 {
            let operations = operations(&mut dice, &values);
            let exists = some_order(&operations, State::START);
            let (found, _) = search(&operations, Tolerance::EXACT, BUDGET);
            assert_eq!(found, if exists { Found::Order } else { Found::NoOrder }, "case {case}: {operations:#?}");
            orders += usize::from(exists);
        }
        assert!((400..3_600).contains(&orders), "both are met: {orders}");
    }

    #[test]
    fn a_set_of_many_operations_is_no_less_exact() {
        let value = Value::from("a");
        let never = |revision| Deed::Written { over: Over::Anything, value: &value, expiry: Expiry::Never, revision };
        let moment = |at: usize| Moment { at: at as i64, order: at as u64 };
        let mut operations: Vec<_> = (0..300)
            .map(|exchange| Operation {
                exchange,
                item: 0,
                called: moment(exchange * 2),
                returned: Some(moment(exchange * 2 + 1)),
                deed: never(Some(exchange as u64 + 1)),
            })
            .collect();
        assert_eq!(search(&operations, Tolerance::EXACT, BUDGET), (Found::Order, 300));
        operations[299].deed = never(Some(299));
        assert_eq!(search(&operations, Tolerance::EXACT, BUDGET), (Found::NoOrder, 299));
    }

    #[test]
    fn no_state_is_visited_twice() {
        let value = Value::from("a");
        let at_once = |exchange, deed| Operation {
            exchange,
            item: 0,
            called: Moment { at: 0, order: 0 },
            returned: Some(Moment { at: 1, order: 1 }),
            deed,
        };
        let mut operations: Vec<_> = (0..12).map(|exchange| at_once(exchange, Deed::Absent)).collect();
        operations.push(at_once(12, Deed::Removed { expected: Some(&value) }));
        // Every set of the 12 but the empty one; their orders are beyond count.
        assert_eq!(search(&operations, Tolerance::EXACT, BUDGET), (Found::NoOrder, (1 << 12) - 1));
    }
}
