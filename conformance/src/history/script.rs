use std::time::Duration;

use leasehold_core::{Expiry, Ttl};

use crate::history::{Dice, Workload};

/// One thing that a client is going to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    /// When, since the round began, or as soon as the client is done with what came before.
    pub(super) at: Duration,
    pub(super) action: Action,
}

/// What it does; keys are named by their number, and values made up when the time comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    TryAdd { key: usize, ttl: Ttl },
    TryReplace { key: usize, expected: Guess, ttl: Ttl },
    TryRemove { key: usize, expected: Guess },
    TryExpire { key: usize, expected: Guess, ttl: Ttl },
    Get { key: usize },
    Set { key: usize, expiry: Expiry },
    Remove { key: usize },
    GetMany { keys: Vec<usize> },
    SetMany { items: Vec<(usize, Expiry)> },
    RemoveMany { keys: Vec<usize> },
}

impl Action {
    /// The key of which it expects a value, and which one.
    fn expects(&mut self) -> Option<(usize, &mut Guess)> {
        match self {
            Self::TryReplace { key, expected, .. }
            | Self::TryRemove { key, expected }
            | Self::TryExpire { key, expected, .. } => Some((*key, expected)),
            _ => None,
        }
    }
}

/// Which value a client expects to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guess {
    /// The last one that it saw or wrote itself.
    Own,
    /// The last one that any client saw or wrote.
    Latest,
    /// One that nobody ever wrote.
    Wrong,
}

#[derive(Clone, Copy)]
enum Kind {
    TryAdd,
    TryReplace,
    TryRemove,
    TryExpire,
    Get,
    Set,
    Remove,
    GetMany,
    SetMany,
    RemoveMany,
}

const PRIMITIVES: [(u64, Kind); 5] =
    [(30, Kind::TryAdd), (20, Kind::TryReplace), (15, Kind::TryRemove), (15, Kind::TryExpire), (20, Kind::Get)];

/// What many do at once.
const THEMES: [(u64, Kind); 5] =
    [(25, Kind::TryAdd), (35, Kind::TryReplace), (15, Kind::TryRemove), (10, Kind::TryExpire), (15, Kind::Get)];

// A set that nobody expects hides much of what came before it, so they are few.
const CACHE: [(u64, Kind); 10] = [
    (15, Kind::TryAdd),
    (8, Kind::TryReplace),
    (8, Kind::TryRemove),
    (10, Kind::TryExpire),
    (19, Kind::Get),
    (15, Kind::Set),
    (6, Kind::Remove),
    (9, Kind::GetMany),
    (7, Kind::SetMany),
    (3, Kind::RemoveMany),
];

/// The script of one client in one round: of the primitives, or of the whole contract.
pub(super) fn script(workload: &Workload, round: u32, client: u32, cache: bool) -> Vec<Planned> {
    let of_round = [workload.seed, round.into(), cache.into()];
    let dice = |path: &[u64]| Dice::new(&[&of_round[..], path].concat());
    let mut author = Author {
        dice: dice(&[0, client.into()]),
        kinds: if cache { &CACHE } else { &PRIMITIVES },
        keys: workload.keys.max(1) as usize,
        beat: workload.tempo / 2,
        now: 0,
        key: None,
    };
    let mut script = Vec::new();
    while script.len() < workload.operations as usize {
        author.now += author.pause();
        let theme = Theme {
            kind: dice(&[1, author.now.into()]).weighted(&THEMES),
            key: dice(&[2, (author.now / Theme::BEATS_A_KEY).into()]).below(author.keys as u64) as usize,
        };
        author.write(&mut script, theme);
    }
    script.truncate(workload.operations as usize);
    script
}

/// What the clients of one beat tend to do: most faults need two that do the same to the same key at once.
#[derive(Clone, Copy)]
struct Theme {
    kind: Kind,
    key: usize,
}

impl Theme {
    /// They stay with a key for a while, so that they know what is there.
    const BEATS_A_KEY: u32 = 4;
}

struct Author {
    dice: Dice,
    kinds: &'static [(u64, Kind)],
    keys: usize,
    beat: Duration,
    now: u32,
    /// The key of the theme, where it is followed.
    key: Option<usize>,
}

impl Author {
    fn write(&mut self, script: &mut Vec<Planned>, theme: Theme) {
        let follow = self.dice.chance(65);
        let any = self.dice.weighted(self.kinds);
        // Who begins with anything else finds nothing there.
        let kind = if script.is_empty() {
            Kind::TryAdd
        } else if follow {
            theme.kind
        } else {
            any
        };
        self.key = (follow || self.dice.chance(50)).then_some(theme.key);
        let off_beat = self.beat * self.dice.below(100) as u32 / 100;
        let at = self.beat * self.now + if follow { Duration::ZERO } else { off_beat };
        let mut action = self.action(kind);
        if let Some((key, expected)) = action.expects()
            && self.dice.chance(50)
        {
            // It looks first, as a loop around a compare-and-swap does: several that do so meet.
            *expected = Guess::Own;
            script.push(Planned { at, action: Action::Get { key } });
        }
        script.push(Planned { at, action });
    }

    fn action(&mut self, kind: Kind) -> Action {
        match kind {
            Kind::TryAdd => Action::TryAdd { key: self.key(), ttl: self.ttl() },
            Kind::TryReplace => Action::TryReplace { key: self.key(), expected: self.guess(), ttl: self.ttl() },
            Kind::TryRemove => Action::TryRemove { key: self.key(), expected: self.guess() },
            Kind::TryExpire => Action::TryExpire { key: self.key(), expected: self.guess(), ttl: self.ttl() },
            Kind::Get => Action::Get { key: self.key() },
            Kind::Set => Action::Set { key: self.key(), expiry: self.expiry() },
            Kind::Remove => Action::Remove { key: self.key() },
            Kind::GetMany => Action::GetMany { keys: self.several() },
            Kind::SetMany => {
                Action::SetMany { items: self.several().into_iter().map(|key| (key, self.expiry())).collect() }
            }
            Kind::RemoveMany => Action::RemoveMany { keys: self.several() },
        }
    }

    fn key(&mut self) -> usize {
        let any = self.dice.below(self.keys as u64) as usize;
        self.key.unwrap_or(any)
    }

    /// Two or more different keys, where there are, in some order.
    fn several(&mut self) -> Vec<usize> {
        let mut keys: Vec<usize> = (0..self.keys).collect();
        for place in (1..keys.len()).rev() {
            keys.swap(place, self.dice.below(place as u64 + 1) as usize);
        }
        let most = keys.len().min(4);
        keys.truncate(2 + self.dice.below(most.saturating_sub(1).max(1) as u64) as usize);
        keys
    }

    /// In beats, and mostly one, so that many act in each.
    fn pause(&mut self) -> u32 {
        self.dice.weighted(&[(25, 0), (45, 1), (15, 2), (15, 4)])
    }

    fn ttl(&mut self) -> Ttl {
        let beats = self.dice.weighted(&[(2, 1), (2, 2), (3, 4), (3, 10), (1, 40)]);
        Ttl::try_from(self.beat * beats).unwrap_or(Ttl::MIN)
    }

    fn expiry(&mut self) -> Expiry {
        match self.dice.below(10) {
            0 => Expiry::Never,
            1..=4 => Expiry::After(self.ttl()),
            5..=7 => Expiry::Sliding(self.ttl()),
            _ => Expiry::SlidingUntil { idle: self.ttl(), at_most: self.ttl() },
        }
    }

    fn guess(&mut self) -> Guess {
        self.dice.weighted(&[(25, Guess::Own), (55, Guess::Latest), (20, Guess::Wrong)])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_seed_the_round_and_the_client_decide_the_script() {
        let of = |seed, round, client| script(&Workload::new(seed), round, client, true);
        assert_eq!(of(1, 2, 3), of(1, 2, 3));
        assert_eq!(of(1, 2, 3).len(), 12);
        for other in [of(9, 2, 3), of(1, 9, 3), of(1, 2, 9)] {
            assert_ne!(of(1, 2, 3), other);
        }
    }

    #[test]
    fn a_batch_names_no_key_twice() {
        for keys in [1, 2, 3, 9] {
            let workload = Workload::new(7).with_operations(2_000).with_keys(keys);
            let mut batches = 0;
            for planned in script(&workload, 0, 0, true) {
                let (Action::GetMany { keys: batch } | Action::RemoveMany { keys: batch }) = planned.action else {
                    continue;
                };
                let different: HashSet<_> = batch.iter().collect();
                assert_eq!(different.len(), batch.len());
                assert!(batch.len() >= 2.min(keys as usize) && batch.iter().all(|&key| key < keys as usize));
                batches += 1;
            }
            assert!(batches > 0);
        }
    }

    #[test]
    fn the_primitives_alone_are_all_that_a_store_without_a_cache_is_asked() {
        let script = script(&Workload::new(7).with_operations(1_000), 0, 0, false);
        let primitive = |planned: &Planned| {
            matches!(
                planned.action,
                Action::TryAdd { .. }
                    | Action::TryReplace { .. }
                    | Action::TryRemove { .. }
                    | Action::TryExpire { .. }
                    | Action::Get { .. }
            )
        };
        assert!(script.iter().all(primitive));
    }
}
