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
    entry: Vec<u8>,
    /// How much of the entry's name is that of its floor.
    floor: Option<usize>,
    arguments: Vec<Argument>,
}

#[derive(Debug)]
enum Argument {
    Text(Vec<u8>),
    Number(u64),
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
        arguments += item.arguments.len();
        bytes += item.len();
    }
    let mut command = Cmd::with_capacity(3 + keys + arguments, bytes);
    command.arg(name).arg(script).arg(keys);
    for Item { entry, floor, .. } in items.clone() {
        command.arg(entry.as_slice());
        if let Some(floor) = floor {
            command.arg(&entry[..*floor]);
        }
    }
    for argument in items.flat_map(|item| &item.arguments) {
        match argument {
            Argument::Text(text) => command.arg(text.as_slice()),
            Argument::Number(number) => command.arg(*number),
        };
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
    /// An item of a script that mints no revision.
    pub(crate) fn on_entry(kind: Kind, entry: Vec<u8>) -> Self {
        Self { kind, entry, floor: None, arguments: Vec::with_capacity(4) }
    }

    /// An item of a script that does; the name of the floor is the first so many bytes of the entry's.
    pub(crate) fn on_entry_and_floor(kind: Kind, entry: Vec<u8>, floor: usize) -> Self {
        Self { floor: Some(floor), ..Self::on_entry(kind, entry) }
    }

    pub(crate) fn text(mut self, text: Vec<u8>) -> Self {
        self.arguments.push(Argument::Text(text));
        self
    }

    pub(crate) fn number(mut self, number: u64) -> Self {
        self.arguments.push(Argument::Number(number));
        self
    }

    /// About how many bytes it comes to.
    pub(crate) fn len(&self) -> usize {
        let Self { kind: _, entry, floor, arguments } = self;
        let arguments = arguments.iter().map(|argument| match argument {
            Argument::Text(text) => text.len(),
            Argument::Number(_) => 12,
        });
        entry.len() + floor.unwrap_or(0) + arguments.sum::<usize>()
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
            Item::on_entry_and_floor(Kind::TryAdd, entry.into(), 1).text(b"v".to_vec()).number(number)
        };
        let items = [item("a1", 1), item("b2", 2)];
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
