use bytes::Bytes;
use leasehold_core::{Error, ErrorKind, Expiry, Key, KeyPrefix};

use crate::store::NAME;

/// How entries are named and written.
///
/// An entry is one string named `PREFIX{TAG}:KEY`. The tag is one of 1,024, chosen by a hash of the key. The floor of all
/// revisions is one named `PREFIX{floor}`; in a Cluster, which takes no script on names of several slots, each tag has a
/// floor of its own, named `PREFIX{TAG}`. A Cluster places a name by the first tag in braces, which is ours whatever
/// braces the key has, so an entry and its floor are always together, and with them the channel of the hints, named as
/// the entry.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    prefix: String,
}

/// Before a value that ends when it ends.
const PLAIN: u8 = b'=';
/// Before a value whose end every read moves; then come its terms, as `get.lua` says.
const SLIDING: u8 = b'~';
const SLIDING_TERMS: usize = 26;

/// `{`, three digits, `}`.
const TAG: usize = 5;
const BUCKETS: u32 = 1024;

impl Layout {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The name of an entry, and of the channel of its hints.
    pub(crate) fn entry(&self, key: &Key) -> Vec<u8> {
        self.entry_with_room(key, 0)
    }

    /// The same, with room for so many bytes behind it.
    pub(crate) fn entry_with_room(&self, key: &Key, room: usize) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.prefix.len() + TAG + 1 + key.as_bytes().len() + room);
        self.write_floor_of_slot(key, &mut name);
        name.push(b':');
        name.extend_from_slice(key.as_bytes());
        name
    }

    /// The name of the floor of all revisions.
    pub(crate) fn floor(&self) -> Vec<u8> {
        [self.prefix.as_bytes(), b"{floor}"].concat()
    }

    /// How many bytes of an entry's name are that of the floor of its slot.
    pub(crate) fn floor_of_slot(&self) -> usize {
        self.prefix.len() + TAG
    }

    /// The pattern of the names of all entries whose keys begin so.
    pub(crate) fn pattern(&self, prefix: &KeyPrefix) -> Vec<u8> {
        let mut pattern = Vec::new();
        escape(self.prefix.as_bytes(), &mut pattern);
        pattern.extend_from_slice(b"{???}:");
        escape(prefix.as_bytes(), &mut pattern);
        pattern.push(b'*');
        pattern
    }

    /// The key of an entry; nothing for a name that is none of this layout.
    pub(crate) fn key(&self, name: &[u8]) -> Option<Key> {
        let key = name.strip_prefix(self.prefix.as_bytes())?.get(TAG..)?.strip_prefix(b":")?;
        let key = Key::from_store(std::str::from_utf8(key).ok()?).ok()?;
        // A name with another tag is not where this key is looked for.
        (self.entry(&key) == name).then_some(key)
    }

    fn write_floor_of_slot(&self, key: &Key, name: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let bucket = (hash(key.as_bytes()) % BUCKETS) as usize;
        name.extend_from_slice(self.prefix.as_bytes());
        name.extend_from_slice(&[b'{', DIGITS[bucket >> 8], DIGITS[(bucket >> 4) & 0xf], DIGITS[bucket & 0xf], b'}']);
    }
}

/// FNV-1a, with its bits folded down, as the low ones alone mix too little. The names in the store rest on it: it can
/// never change.
fn hash(bytes: &[u8]) -> u32 {
    let mixed = bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    mixed ^ (mixed >> 10) ^ (mixed >> 20)
}

fn escape(text: &[u8], pattern: &mut Vec<u8>) {
    for byte in text {
        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b'^' | b'-') {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
}

/// Writes a value as it is stored, and as it is compared.
pub(crate) fn write_stored(value: &[u8], stored: &mut Vec<u8>) {
    stored.push(PLAIN);
    stored.extend_from_slice(value);
}

/// The value of what is stored.
pub(crate) fn value_of(operation: &'static str, stored: Vec<u8>) -> Result<Bytes, Error> {
    let start = match stored.first() {
        Some(&PLAIN) => 1,
        Some(&SLIDING) if stored.len() > SLIDING_TERMS => 1 + SLIDING_TERMS,
        _ => {
            return Err(Error::new(ErrorKind::Corrupt, operation, "what is stored there is not of this library")
                .with_store(NAME)
                .with_effect(leasehold_core::Effect::None));
        }
    };
    Ok(Bytes::from(stored).slice(start..))
}

/// What `set.lua` takes after the value: the first ttl, how long it lives without a read, and how long at most, in
/// milliseconds; zero stands for none.
pub(crate) fn terms(expiry: Expiry) -> [u64; 3] {
    [expiry.first_ttl(), expiry.idle(), expiry.at_most()].map(|ttl| ttl.map_or(0, |ttl| ttl.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    /// The part of a name that a Cluster hashes: what is between the first `{` and the next `}`, unless that is empty.
    fn hashed(name: &[u8]) -> &[u8] {
        let Some(open) = name.iter().position(|byte| *byte == b'{') else { return name };
        match name[open + 1..].iter().position(|byte| *byte == b'}') {
            None | Some(0) => name,
            Some(length) => &name[open + 1..open + 1 + length],
        }
    }

    #[test]
    fn all_that_belongs_to_a_key_is_in_one_slot_whatever_braces_it_has() {
        let layout = Layout::new("leasehold:");
        for text in ["a", "}x", "{}x", "{a}b", "}{", "{", "a{b}c{d}", "ü{", "lock:{user}:1"] {
            let entry = layout.entry(&key(text));
            let floor = &entry[..layout.floor_of_slot()];
            assert_eq!(hashed(&entry), hashed(floor), "{text}");
            assert_eq!(hashed(floor).len(), 3);
            assert_eq!(layout.key(&entry), Some(key(text)));
        }
    }

    #[test]
    fn names_of_others_are_no_entries() {
        let layout = Layout::new("leasehold:");
        let entry = layout.entry(&key("a"));
        assert_eq!(layout.key(&entry[..layout.floor_of_slot()]), None);
        assert_eq!(layout.key(&layout.floor()), None);
        assert_eq!(layout.key(b"a"), None);
        assert_eq!(layout.key(b"leasehold:{0}:a"), None);
        assert_eq!(Layout::new("other:").key(&entry), None);
        let tag = entry.len() - 4;
        let mut misplaced = entry.clone();
        misplaced[tag] = if misplaced[tag] == b'0' { b'1' } else { b'0' };
        assert_eq!(layout.key(&misplaced), None, "{:?}", String::from_utf8(misplaced.clone()));
    }

    #[test]
    fn buckets_share_the_keys_evenly() {
        let mut counts = vec![0u32; BUCKETS as usize];
        for number in 0..BUCKETS * 100 {
            counts[(hash(format!("lock:orders:{number}").as_bytes()) % BUCKETS) as usize] += 1;
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*least > 40 && *most < 200, "{least} to {most} of 100");
    }

    #[test]
    fn a_prefix_is_taken_as_it_is_written() {
        let layout = Layout::new("a*b:");
        let pattern = layout.pattern(&KeyPrefix::new("x[1]?*^\\").unwrap());
        assert_eq!(String::from_utf8(pattern).unwrap(), r"a\*b:{???}:x\[1\]\?\*\^\\*");
    }

    #[test]
    fn what_was_not_written_here_is_corrupt_and_without_effect() {
        assert_eq!(value_of("get", vec![PLAIN]).unwrap(), Bytes::new());
        assert_eq!(value_of("get", [&b"~00000000010000000000000000"[..], b"v"].concat()).unwrap(), "v");
        for foreign in [&b""[..], b"v", b"~1", b"\0"] {
            let error = value_of("get", foreign.to_vec()).unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Corrupt, leasehold_core::Effect::None));
        }
    }
}
