/// The scripts, one for each operation. Each reads first, takes the time at most once and writes last, so that one that
/// fails has written nothing; only the hint follows the write, and that one cannot fail the script.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) try_add: Script,
    pub(crate) try_replace: Script,
    pub(crate) try_remove: Script,
    pub(crate) try_expire: Script,
    pub(crate) get: Script,
    pub(crate) set: Script,
    pub(crate) remove: Script,
}

/// A script, and the hash that the server knows it by.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    hash: String,
}

macro_rules! script {
    ($database:expr, $($part:literal),+) => {
        Script::new(concat!($(include_str!(concat!("../scripts/", $part, ".lua"))),+), $database)
    };
}

impl Scripts {
    /// The scripts for a database. Channels span databases, so a hint names the one that it is about.
    pub(crate) fn new(database: i64) -> Self {
        Self {
            try_add: script!(database, "part_mint", "try_add"),
            try_replace: script!(database, "part_compare", "part_mint", "try_replace"),
            try_remove: script!(database, "part_compare", "try_remove"),
            try_expire: script!(database, "part_compare", "try_expire"),
            get: script!(database, "get"),
            set: script!(database, "part_mint", "set"),
            remove: script!(database, "remove"),
        }
    }
}

impl Script {
    fn new(text: &str, database: i64) -> Self {
        let text = without_comments(text).replace("$DATABASE", &database.to_string());
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn hash(&self) -> &str {
        &self.hash
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
        let Scripts { try_remove, remove, .. } = Scripts::new(7);
        assert!(try_remove.text().contains("redis.pcall('PUBLISH', KEYS[1], '7')"), "{}", try_remove.text());
        assert!(!try_remove.text().contains("--"), "{}", try_remove.text());
        assert_ne!(try_remove.hash(), remove.hash());
        assert_ne!(remove.hash(), Scripts::new(0).remove.hash());
    }
}
