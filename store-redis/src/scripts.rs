use redis::Cmd;

use crate::layout::Layout;

/// The script that all operations are made of. One call does any number of items of any kinds, which have nothing to do
/// with each other but that they are on their way together: the answer is a list of theirs, and an item that is refused
/// answers with an error of its own.
///
/// For each item it reads first and writes last, so that one that is refused has written nothing; what follows the write
/// is the hint, which cannot fail the item, and the floor of the revisions, once for all.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    hash: String,
    /// The floor of all entries, on a server without slots.
    floor: Vec<u8>,
    /// How much of an entry's name is that of the floor of its slot.
    floor_of_slot: usize,
}

/// An operation by its part of the script. Calls that go together are put in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    TryAdd,
    TryReplace,
    TryRemove,
    TryExpire,
    Get,
    Set,
    Remove,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::TryAdd, Self::TryReplace, Self::TryRemove, Self::TryExpire, Self::Get, Self::Set, Self::Remove];

    /// The name that the script knows it by, and its part.
    fn part(self) -> (&'static str, &'static str) {
        macro_rules! part {
            ($name:literal) => {
                ($name, include_str!(concat!("../scripts/", $name, ".lua")))
            };
        }
        match self {
            Self::TryAdd => part!("try_add"),
            Self::TryReplace => part!("try_replace"),
            Self::TryRemove => part!("try_remove"),
            Self::TryExpire => part!("try_expire"),
            Self::Get => part!("get"),
            Self::Set => part!("set"),
            Self::Remove => part!("remove"),
        }
    }
}

/// An item of a call: an entry, and arguments, always as many for one kind.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    /// The name of the entry, and then the arguments, as they are sent.
    bytes: Vec<u8>,
    /// How many these are.
    parts: usize,
    /// Where each of them ends.
    ends: [usize; Self::PARTS],
}

/// Where the floor of the revisions is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Floor {
    /// One of all entries.
    Shared,
    /// That of the slot that the items are in, for a Cluster.
    OfSlot,
}

impl Script {
    /// The script for a database. Channels span databases, so a hint names the one that it is about.
    pub(crate) fn new(database: i64, layout: &Layout) -> Self {
        let operations = Kind::ALL.map(|kind| {
            let (name, text) = kind.part();
            format!("if operation == '{name}' then\n{}", without_comments(text))
        });
        let text = without_comments(include_str!("../scripts/run.lua"))
            .replace("$OPERATIONS", &(operations.join("else") + "end"))
            .replace("$DATABASE", &database.to_string());
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash, floor: layout.floor(), floor_of_slot: layout.floor_of_slot() }
    }

    /// Calls the script by its hash, with items of which those of one kind are neighbours.
    pub(crate) fn by_hash(&self, items: &[Item], floor: Floor) -> Cmd {
        self.call("EVALSHA", &self.hash, items, floor)
    }

    /// The same with its text, for a server that does not know it.
    pub(crate) fn by_text(&self, items: &[Item], floor: Floor) -> Cmd {
        self.call("EVAL", &self.text, items, floor)
    }

    fn call(&self, name: &str, script: &str, items: &[Item], floor: Floor) -> Cmd {
        let floor = match (floor, items) {
            (Floor::OfSlot, [first, ..]) => &first.part(0)[..self.floor_of_slot],
            _ => &self.floor,
        };
        let bytes = items.iter().map(Item::len).sum::<usize>();
        let arguments = items.iter().map(|item| item.parts).sum::<usize>();
        // Beside the items' own, there are a name and a number for each kind.
        let room = name.len() + script.len() + floor.len() + 4 + 16 * Kind::ALL.len();
        let mut command = Cmd::with_capacity(4 + arguments + 2 * Kind::ALL.len(), room + bytes);
        command.arg(name).arg(script).arg(1 + items.len()).arg(floor);
        for item in items {
            command.arg(item.part(0));
        }
        for neighbours in items.chunk_by(|one, next| one.kind == next.kind) {
            command.arg(neighbours[0].kind.part().0).arg(neighbours.len());
            for item in neighbours {
                for place in 1..item.parts {
                    command.arg(item.part(place));
                }
            }
        }
        command
    }
}

impl Item {
    /// The entry, and the most arguments that one item has.
    const PARTS: usize = 5;

    /// An item without arguments so far.
    pub(crate) fn new(kind: Kind, entry: Vec<u8>) -> Self {
        let mut ends = [0; Self::PARTS];
        ends[0] = entry.len();
        Self { kind, bytes: entry, ends, parts: 1 }
    }

    /// Takes what is written behind the bytes so far for one more argument.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends[self.parts] = self.bytes.len();
        self.parts += 1;
    }

    fn part(&self, place: usize) -> &[u8] {
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.bytes[start..self.ends[place]]
    }

    /// How many bytes its parts are.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// The server keeps the script's text; ours is sent again whenever it forgot it.
fn without_comments(text: &str) -> String {
    let code = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--"));
    code.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(database: i64) -> Script {
        Script::new(database, &Layout::new("p:"))
    }

    #[test]
    fn the_text_is_the_code_of_all_kinds_and_names_the_database() {
        let Script { text, hash, .. } = script(7);
        assert!(text.contains("call('PUBLISH', entry, '7')"), "{text}");
        assert!(!text.contains("--") && !text.contains('$'), "{text}");
        for kind in Kind::ALL {
            assert!(text.contains(&format!("if operation == '{}' then\n", kind.part().0)), "{text}");
        }
        assert_ne!(hash, script(0).hash);
    }

    #[test]
    fn keys_come_before_arguments_and_each_in_the_order_of_the_items() {
        let item = |kind, entry: &str, number| {
            let mut item = Item::new(kind, entry.into());
            item.push(|bytes| bytes.push(b'v'));
            item.push(|bytes| bytes.push(number));
            item
        };
        let entries = ["p:{000}:a", "p:{001}:b", "p:{002}:c"];
        let get = Item::new(Kind::Get, entries[2].into());
        let items = [item(Kind::TryAdd, entries[0], b'1'), item(Kind::TryAdd, entries[1], b'2'), get];
        let parts = |command: Cmd| -> Vec<_> {
            let part = |part| match part {
                redis::Arg::Simple(part) => String::from_utf8(Vec::from(part)).unwrap(),
                other => panic!("{other:?}"),
            };
            command.args_iter().map(part).collect()
        };
        let shared = parts(script(0).by_hash(&items, Floor::Shared));
        assert_eq!(shared[0], "EVALSHA");
        assert_eq!(shared[2..7], ["4", "p:{floor}", entries[0], entries[1], entries[2]]);
        assert_eq!(shared[7..], ["try_add", "2", "v", "1", "v", "2", "get", "1"]);
        let alone = parts(script(0).by_text(&items[1..2], Floor::OfSlot));
        assert_eq!(alone[0], "EVAL");
        assert_eq!(alone[2..], ["2", "p:{001}", entries[1], "try_add", "1", "v", "2"]);
    }
}
