use std::collections::{BTreeSet, HashSet};
use std::fmt;

use crate::history::operation::{Operation, by_key};
use crate::history::search::{Found, search};
use crate::history::timeline::Timeline;
use crate::history::{Exchange, History, Tolerance};

/// The most pairs of placed operations and state that one search may visit. Those of workloads visit a few hundred.
const BUDGET: usize = 200_000;

/// What is found of a history, and how hard it was.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the history may show that the contract is broken"]
pub struct Judgement {
    /// What is found.
    pub verdict: Verdict,
    /// The states that the largest search visited; there is one search a key.
    pub states: usize,
}

/// What is found of a history. This enum is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the history may show that the contract is broken"]
pub enum Verdict {
    /// Some order explains every answer.
    Ok,
    /// No order does.
    Violation(Violation),
    /// The search was given up. That is no pass.
    Undecided(Undecided),
}

/// The shortest beginning of one key's history that no order explains. Its display is a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The key.
    pub key: String,
    /// What concerns the key, up to the first answer that nothing explains.
    pub prefix: History,
    /// How many operations on the key the whole history has.
    pub of: usize,
    pub(super) misfit: bool,
}

/// A search that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecided {
    /// The key.
    pub key: String,
    /// How many operations on it there are.
    pub operations: usize,
}

/// Why a file cannot be judged.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayError {
    /// It is not a history in JSON.
    Unreadable(serde_json::Error),
    /// It is one of another version.
    Version(u32),
}

/// Looks for an order of the operations that explains every answer. It is a pure function, and a fast one.
pub fn judge(history: &History) -> Judgement {
    judge_within(history, BUDGET)
}

/// Judges a history that was written as JSON, by the tolerance that it was judged by then.
///
/// # Errors
///
/// When the text is not a history of this version, or one that cannot be: its moments are in one order, and an answer
/// comes after its call.
pub fn replay(json: &str) -> Result<Judgement, ReplayError> {
    // The version alone first: what another one looks like is not known.
    #[derive(serde::Deserialize)]
    struct Versioned {
        version: u32,
    }
    let Versioned { version } = serde_json::from_str(json).map_err(ReplayError::Unreadable)?;
    if version != History::VERSION {
        return Err(ReplayError::Version(version));
    }
    let history: History = serde_json::from_str(json).map_err(ReplayError::Unreadable)?;
    match out_of_order(&history) {
        Some(number) => Err(ReplayError::Unreadable(serde::de::Error::custom(format!(
            "exchange {number} has an order that another has, or ends before it begins"
        )))),
        None => Ok(judge(&history)),
    }
}

/// The number of the first exchange whose moments cannot be.
fn out_of_order(history: &History) -> Option<usize> {
    let mut orders = HashSet::new();
    let is_wrong = |exchange: &Exchange| {
        let Exchange { called, returned, .. } = exchange;
        let backwards =
            returned.is_some_and(|returned| returned.order <= called.order || returned.nanos < called.nanos);
        let mut is_taken = |order| !orders.insert(order);
        is_taken(called.order) || returned.is_some_and(|returned| is_taken(returned.order)) || backwards
    };
    history.exchanges.iter().position(is_wrong).map(|place| place + 1)
}

fn judge_within(history: &History, budget: usize) -> Judgement {
    let operations = match by_key(history) {
        Ok(operations) => operations,
        Err(misfit) => {
            let mut prefix = history.clone();
            let exchange = prefix.exchanges.swap_remove(misfit.exchange);
            let key = exchange.call.keys().first().map(ToString::to_string).unwrap_or_default();
            prefix.exchanges = vec![exchange];
            return Judgement {
                verdict: Verdict::Violation(Violation { key, prefix, of: 1, misfit: true }),
                states: 0,
            };
        }
    };
    let mut judgement = Judgement { verdict: Verdict::Ok, states: 0 };
    for (key, operations) in operations {
        let (found, states) = search(&operations, history.tolerance, budget);
        judgement.states = judgement.states.max(states);
        match found {
            Found::Order => {}
            Found::NoOrder => {
                judgement.verdict = Verdict::Violation(Violation::shortest(history, key, &operations, budget));
                return judgement;
            }
            // Another key may still show a violation, which says more.
            Found::Nothing => {
                judgement.verdict = Verdict::Undecided(Undecided { key: key.to_owned(), operations: operations.len() });
            }
        }
    }
    judgement
}

impl Violation {
    /// Cuts the history of one key after each answer in turn, until nothing explains what is left.
    fn shortest(history: &History, key: &str, operations: &[Operation<'_>], budget: usize) -> Self {
        // A batch may name the key twice.
        let exchanges: BTreeSet<usize> = operations.iter().map(|operation| operation.exchange).collect();
        let exchanges = exchanges.into_iter().map(|exchange| history.exchanges[exchange].clone()).collect();
        let of_key = History { exchanges, ..*history };
        let mut answers: Vec<u64> =
            operations.iter().filter_map(|operation| operation.returned).map(|at| at.order).collect();
        answers.sort_unstable();
        let fails = |prefix: &History| {
            by_key(prefix).is_ok_and(|by_key| {
                let operations = by_key.get(key).map_or(&[][..], Vec::as_slice);
                search(operations, prefix.tolerance, budget).0 == Found::NoOrder
            })
        };
        let prefix = answers.into_iter().map(|order| of_key.until(order)).find(fails);
        Self { key: key.to_owned(), prefix: prefix.unwrap_or(of_key), of: operations.len(), misfit: false }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, prefix, of, misfit } = self;
        let (count, tolerance) = (prefix.exchanges.len(), prefix.tolerance);
        if *misfit {
            writeln!(f, "{key}: this is no answer to the call")?;
        } else {
            writeln!(f, "{key}: no order of these {count} operations (of {of}) explains the last answer")?;
            let Tolerance { early, late } = tolerance;
            if !(early.is_zero() && late.is_zero()) {
                writeln!(f, "even if an entry expires up to {tolerance}")?;
            }
        }
        Timeline { key, exchanges: &prefix.exchanges }.fmt(f)
    }
}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operations } = self;
        write!(f, "{key}: undecided: {operations} operations are too many for {BUDGET} states; fewer clients help")
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "this is not a recorded history: {error}"),
            Self::Version(version) => {
                write!(f, "this history is of version {version}, and only {} is known", History::VERSION)
            }
        }
    }
}

impl std::error::Error for ReplayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable(error) => Some(error),
            Self::Version(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
