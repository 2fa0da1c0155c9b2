use redis::Cmd;

/// The scripts, one for each operation. Each does any number of items, which have nothing to do with each other but that
/// they are on their way together: the answer is a list of theirs, and an item that is refused answers with an error of
/// its own.
///
/// For each item a script reads first and writes last, so that one that is refused has written nothing; only the hint
/// follows the write, and that one cannot fail the item. The time is taken at most once.
#[derive(Debug)]
pub(crate) struct Scripts([Script; 7]);

/// A script by its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Whether it needs the floor of the entry's revisions.
    pub(crate) fn mints(self) -> bool {
        matches!(self, Self::TryAdd | Self::TryReplace | Self::Set)
    }
}

/// A script, and the hash that the server knows it by.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    hash: String,
}

/// An item of a script: an entry, the floor of its revisions where the script needs one, and arguments, always as many
/// for one kind.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    /// The name of the entry, and then the arguments, as they are sent.
    bytes: Vec<u8>,
    /// How many these are.
    parts: usize,
    /// Where each of them ends.
    ends: [usize; Self::PARTS],
    /// How much of the entry's name is that of its floor.
    floor: Option<usize>,
}

macro_rules! script {
    ($database:expr, $($part:literal),+) => {
        Script::new(concat!($(include_str!(concat!("../scripts/", $part, ".lua"))),+), $database)
    };
}

impl Scripts {
    /// The scripts for a database. Channels span databases, so a hint names the one that it is about.
    pub(crate) fn new(database: i64) -> Self {
        // In the order of the kinds.
        Self([
            script!(database, "part_read", "part_mint", "try_add"),
            script!(database, "part_matches", "part_mint", "try_replace"),
            script!(database, "part_read", "part_matches", "try_remove"),
            script!(database, "part_read", "part_matches", "try_expire"),
            script!(database, "get"),
            script!(database, "part_mint", "set"),
            script!(database, "remove"),
        ])
    }

    /// Calls a script by its hash, with items of its kind.
    pub(crate) fn by_hash<'i>(&self, kind: Kind, items: impl Iterator<Item = &'i Item> + Clone) -> Cmd {
        call("EVALSHA", &self.0[kind as usize].hash, items)
    }

    /// The same with its text, for a server that does not know it.
    pub(crate) fn by_text<'i>(&self, kind: Kind, items: impl Iterator<Item = &'i Item> + Clone) -> Cmd {
        call("EVAL", &self.0[kind as usize].text, items)
    }
}

fn call<'i>(name: &str, script: &str, items: impl Iterator<Item = &'i Item> + Clone) -> Cmd {
    let (mut keys, mut arguments, mut bytes) = (0, 0, name.len() + script.len() + 4);
    for item in items.clone() {
        keys += 1 + usize::from(item.floor.is_some());
        arguments += item.parts - 1;
        bytes += item.len();
    }
    let mut command = Cmd::with_capacity(3 + keys + arguments, bytes);
    command.arg(name).arg(script).arg(keys);
    for item in items.clone() {
        command.arg(item.part(0));
        if let Some(floor) = item.floor {
            command.arg(&item.bytes[..floor]);
        }
    }
    for item in items {
        for place in 1..item.parts {
            command.arg(item.part(place));
        }
    }
    command
}

impl Script {
    fn new(text: &str, database: i64) -> Self {
        let text = without_comments(text).replace("$DATABASE", &database.to_string());
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

impl Item {
    /// The entry, and the most arguments that a script takes of one item.
    const PARTS: usize = 5;

    /// An item without arguments so far. The name of the floor, where the script needs one, is the first so many bytes of
    /// the entry's.
    pub(crate) fn new(kind: Kind, entry: Vec<u8>, floor: Option<usize>) -> Self {
        let mut ends = [0; Self::PARTS];
        ends[0] = entry.len();
        Self { kind, bytes: entry, ends, parts: 1, floor }
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

    /// About how many bytes it comes to.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.floor.unwrap_or(0)
    }
}

/// The server keeps every script's text; ours is sent again whenever it forgot it.
fn without_comments(text: &str) -> String {
    let code = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--"));
    code.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_code_and_names_the_database() {
        let scripts = Scripts::new(7);
        let Script { text, hash } = &scripts.0[Kind::TryRemove as usize];
        assert!(text.contains("redis.pcall('PUBLISH', entry, '7')"), "{text}");
        assert!(!text.contains("--") && !text.contains('$'), "{text}");
        assert_ne!(*hash, Scripts::new(0).0[Kind::TryRemove as usize].hash);
        assert!(scripts.0[Kind::Remove as usize].text.contains("UNLINK"), "the kinds are in order");
    }

    #[test]
    fn keys_come_before_arguments_and_each_in_the_order_of_the_items() {
        let item = |entry: &str, number| {
            let mut item = Item::new(Kind::TryAdd, entry.into(), Some(1));
            item.push(|bytes| bytes.push(b'v'));
            item.push(|bytes| bytes.push(number));
            item
        };
        let items = [item("a1", b'1'), item("b2", b'2')];
        let command = Scripts::new(0).by_hash(Kind::TryAdd, items.iter());
        let parts: Vec<_> = command
            .args_iter()
            .map(|part| match part {
                redis::Arg::Simple(part) => String::from_utf8(part.to_vec()).unwrap(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(parts[0], "EVALSHA");
        assert_eq!(parts[2..], ["4", "a1", "a", "b2", "b", "v", "1", "v", "2"]);
    }
}
