use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::error::{Code, Effect, Error, ErrorKind, shown};

/// Between the parts of a composed key.
const SEPARATOR: char = ':';
/// Starts an escape inside a part.
const ESCAPE: char = '%';
/// How a part that is absent is written; a part that reads so is escaped.
const ABSENT: &str = "-";

/// The name of an entry: 1 to 512 characters (so at most 2,048 bytes of UTF-8) without white space and control
/// characters, compared byte by byte.
///
/// It is validated once, here, so that a store can take every `Key` as it is. Nothing is normalized, folded, cut or
/// hashed: two keys are the same exactly when their bytes are.
///
/// A clone shares the text and costs no allocation.
///
/// ```
/// use leasehold_core::{Key, Part};
///
/// let key = Key::new("orders:42")?;
/// let composed = Key::compose([Part::from("tenant:7"), Part::Absent, Part::from("42")])?;
/// assert_eq!(composed.as_str(), "tenant%3A7:-:42");
/// assert!(Key::new("two words").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The longest key, in characters.
    pub const MAX_CHARS: usize = 512;

    /// Takes a key as it is written.
    ///
    /// # Errors
    ///
    /// `InvalidInput` with [`Code::InvalidKey`] when it is empty, too long, or has white space or a control character.
    pub fn new(key: impl AsRef<str>) -> Result<Self, Error> {
        let key = key.as_ref();
        if key.is_empty() {
            return Err(invalid("a key", key, "must not be empty"));
        }
        check(key, "a key")?;
        Ok(Self(key.into()))
    }

    /// Makes one key of several parts, so that different parts never make the same key.
    ///
    /// Parts are joined by `:`; inside a part `:` and `%` are percent-encoded. [`Part::Absent`] is written `-`, and a
    /// part that reads `-` is encoded, so an absent part is never the same as one that says so.
    ///
    /// # Errors
    ///
    /// As [`Key::new`], of the key as composed.
    pub fn compose<'p>(parts: impl IntoIterator<Item = Part<'p>>) -> Result<Self, Error> {
        let mut key = String::new();
        for (place, part) in parts.into_iter().enumerate() {
            if place > 0 {
                key.push(SEPARATOR);
            }
            part.write_to(&mut key);
        }
        Self::new(key)
    }

    /// The parts of a composed key, an absent one as `None`; nothing for a key that composing never makes.
    pub(crate) fn parts(&self) -> Option<Vec<Option<String>>> {
        self.0.split(SEPARATOR).map(Part::read).collect()
    }

    /// The key that a module stores `self` under: `module:` and then the key as it is. The first separator ends the
    /// module's name, which has none, so two modules never meet.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when the result is longer than a key may be.
    pub(crate) fn within(&self, module: &'static str) -> Result<Self, Error> {
        debug_assert!(!module.contains([SEPARATOR, ESCAPE]));
        let composed = self.after(module, ":");
        // Only the length can be wrong now, and most keys are far from it: bytes bound characters.
        if composed.0.len() > Self::MAX_CHARS {
            check(&composed.0, "a key")?;
        }
        Ok(composed)
    }

    /// The key below a namespace. It may be longer than [`Key::MAX_CHARS`], by what a namespace may add.
    pub(crate) fn below(&self, namespace: &Namespace) -> Self {
        self.after(&namespace.0, "")
    }

    /// The key without its namespace, or nothing when it is not below it.
    pub(crate) fn strip(&self, namespace: &Namespace) -> Option<Self> {
        self.0.strip_prefix(&*namespace.0).map(|rest| Self(rest.into()))
    }

    /// A key that a store hands back: it was a valid one when it came in.
    ///
    /// # Errors
    ///
    /// `Corrupt` when what the store holds was never a key of this library. To read it has changed nothing.
    pub fn from_store(key: &str) -> Result<Self, Error> {
        let longest = Self::MAX_CHARS + Namespace::MAX_BYTES;
        if key.is_empty() || key.len() > longest * 4 || check_characters(key).is_some() {
            let message = format!("{} is not a key", shown(key));
            return Err(Error::new(ErrorKind::Corrupt, "key", message).with_effect(Effect::None));
        }
        Ok(Self(key.into()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key as bytes, for a store that compares and stores bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    fn after(&self, first: &str, separator: &str) -> Self {
        let mut composed = String::with_capacity(first.len() + separator.len() + self.0.len());
        composed.push_str(first);
        composed.push_str(separator);
        composed.push_str(&self.0);
        Self(composed.into())
    }
}

/// One part of a composed key. See [`Key::compose`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'p> {
    /// A part that is there; it may be empty.
    Text(&'p str),
    /// A part that is not there, such as the tenant of a call without one.
    Absent,
}

impl Part<'_> {
    /// Undoes [`write_to`](Self::write_to), or nothing for what that never writes.
    fn read(written: &str) -> Option<Option<String>> {
        if written == ABSENT {
            return Some(None);
        }
        let text = written.replace("%3A", ":").replace("%2D", ABSENT).replace("%25", "%");
        let mut again = String::with_capacity(written.len());
        Part::Text(&text).write_to(&mut again);
        (again == written).then_some(Some(text))
    }

    fn write_to(self, key: &mut String) {
        match self {
            Self::Absent => key.push_str(ABSENT),
            Self::Text(ABSENT) => key.push_str("%2D"),
            Self::Text(text) => {
                for character in text.chars() {
                    match character {
                        SEPARATOR => key.push_str("%3A"),
                        ESCAPE => key.push_str("%25"),
                        other => key.push(other),
                    }
                }
            }
        }
    }
}

impl<'p> From<&'p str> for Part<'p> {
    fn from(text: &'p str) -> Self {
        Self::Text(text)
    }
}

impl<'p> From<Option<&'p str>> for Part<'p> {
    fn from(text: Option<&'p str>) -> Self {
        text.map_or(Self::Absent, Self::Text)
    }
}

/// What keys begin with, for a scan or a watch: 0 to 512 characters of what a key may hold.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyPrefix(Arc<str>);

impl KeyPrefix {
    /// Takes a prefix as it is written; the empty one is that of every key.
    ///
    /// # Errors
    ///
    /// As [`Key::new`], but for the empty prefix.
    pub fn new(prefix: impl AsRef<str>) -> Result<Self, Error> {
        let prefix = prefix.as_ref();
        check(prefix, "a prefix")?;
        Ok(Self(prefix.into()))
    }

    /// The prefix below a namespace.
    pub(crate) fn below(&self, namespace: &Namespace) -> Self {
        Self([&*namespace.0, &*self.0].concat().into())
    }

    /// Whether a key begins so, byte by byte.
    pub fn matches(&self, key: &Key) -> bool {
        key.0.starts_with(&*self.0)
    }

    /// The prefix as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The prefix as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// A name that keeps the keys of one user of a store apart from those of another: at most 128 bytes with the
/// separator that it brings.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// The most that a namespace adds to a key, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Takes a name; `:` and `%` in it are percent-encoded, so that no namespace is a beginning of another.
    ///
    /// # Errors
    ///
    /// `InvalidInput` with [`Code::InvalidKey`] when the name is empty, has white space or a control character, or is
    /// too long as encoded.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(invalid("a namespace", name, "must not be empty"));
        }
        if let Some(rule) = check_characters(name) {
            return Err(invalid("a namespace", name, rule));
        }
        let mut encoded = String::new();
        Part::Text(name).write_to(&mut encoded);
        encoded.push(SEPARATOR);
        if encoded.len() > Self::MAX_BYTES {
            return Err(invalid("a namespace", name, "must be at most 127 bytes as encoded"));
        }
        Ok(Self(encoded.into()))
    }

    /// The namespace as keys begin: the encoded name and the separator.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(text: &str, what: &str) -> Result<(), Error> {
    if let Some(rule) = check_characters(text) {
        return Err(invalid(what, text, rule));
    }
    // Bytes bound characters, so that the usual short key is not counted.
    if text.len() > Key::MAX_CHARS && text.chars().count() > Key::MAX_CHARS {
        return Err(invalid(what, text, "must be at most 512 characters"));
    }
    Ok(())
}

/// The rule that a character breaks, if one does.
fn check_characters(text: &str) -> Option<&'static str> {
    let plain = |byte: u8| byte.is_ascii_graphic();
    if text.bytes().all(plain) {
        return None;
    }
    text.chars().find_map(|character| {
        if character.is_control() {
            Some("must not have a control character")
        } else if character.is_whitespace() {
            Some("must not have white space")
        } else {
            None
        }
    })
}

fn invalid(what: &str, value: &str, rule: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, "key", format!("{what} {rule}, and {} breaks it", shown(value)))
        .with_code(Code::InvalidKey)
}

impl TryFrom<&str> for Key {
    type Error = Error;

    fn try_from(key: &str) -> Result<Self, Error> {
        Self::new(key)
    }
}

impl TryFrom<String> for Key {
    type Error = Error;

    fn try_from(key: String) -> Result<Self, Error> {
        Self::new(key)
    }
}

impl TryFrom<&String> for Key {
    type Error = Error;

    fn try_from(key: &String) -> Result<Self, Error> {
        Self::new(key)
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Self {
        key.clone()
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Debug for KeyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(key: &str) -> String {
        let error = Key::new(key).expect_err("an invalid key");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.code(), Some(Code::InvalidKey));
        error.to_string()
    }

    #[test]
    fn an_invalid_key_is_refused_by_value_and_rule() {
        assert!(refused("").contains("must not be empty"));
        assert!(refused("a b").contains("white space, and \"a b\""));
        assert!(refused("a\u{a0}b").contains("white space"));
        assert!(refused("a\0b").contains("control character"));
        assert!(refused(&"x".repeat(513)).contains("at most 512 characters"));
        assert!(Key::new("\u{1d306}".repeat(512)).is_ok(), "2,048 bytes of UTF-8 are 512 characters");
    }

    #[test]
    fn parts_that_would_collide_when_joined_stay_apart() {
        let compose = |parts: &[Part<'_>]| Key::compose(parts.iter().copied()).unwrap();
        assert_ne!(compose(&["a:b".into(), "c".into()]), compose(&["a".into(), "b:c".into()]));
        assert_ne!(compose(&["a".into(), Part::Absent]), compose(&["a".into(), "-".into()]));
        assert_ne!(compose(&["a".into(), "".into()]), compose(&["a".into()]));
        assert_ne!(compose(&["%3A".into()]), compose(&[":".into()]));
    }

    #[test]
    fn a_namespace_keeps_its_keys_and_adds_at_most_its_bytes() {
        let key = Key::new("x".repeat(512)).unwrap();
        let namespace = Namespace::new("n".repeat(127)).unwrap();
        let below = key.below(&namespace);
        assert_eq!(below.as_bytes().len(), 512 + Namespace::MAX_BYTES);
        assert_eq!(below.strip(&namespace), Some(key));
        assert!(Namespace::new("n".repeat(128)).is_err());
        assert!(Namespace::new("").is_err());
        assert!(Namespace::new("a b").is_err());
    }

    fn part() -> impl Strategy<Value = Option<String>> {
        prop_oneof![
            1 => Just(None),
            6 => "[a:%\\-2D3ü]{0,6}".prop_map(Some),
        ]
    }

    proptest! {
        #[test]
        fn composing_is_injective(left in prop::collection::vec(part(), 1..5), right in prop::collection::vec(part(), 1..5)) {
            let compose = |parts: &[Option<String>]| Key::compose(parts.iter().map(|part| Part::from(part.as_deref())));
            match (compose(&left), compose(&right)) {
                (Ok(left_key), Ok(right_key)) => prop_assert_eq!(left == right, left_key == right_key),
                // Only the one empty part makes an empty key.
                (Err(_), _) => prop_assert_eq!(left, vec![Some(String::new())]),
                (_, Err(_)) => prop_assert_eq!(right, vec![Some(String::new())]),
            }
        }

        #[test]
        fn parts_are_read_back(parts in prop::collection::vec(part(), 1..5)) {
            if let Ok(key) = Key::compose(parts.iter().map(|part| Part::from(part.as_deref()))) {
                prop_assert_eq!(key.parts(), Some(parts));
            }
        }

        #[test]
        fn what_composing_never_makes_has_no_parts(text in "[a:%\\-2D3A5]{1,8}") {
            let key = Key::new(text).unwrap();
            if let Some(parts) = key.parts() {
                let again = Key::compose(parts.iter().map(|part| Part::from(part.as_deref()))).unwrap();
                prop_assert_eq!(again, key);
            }
        }

        #[test]
        fn namespaces_never_meet(one in "[a:%]{1,5}", other in "[a:%]{1,5}", x in "[a:%]{1,8}", y in "[a:%]{1,8}") {
            prop_assume!(one != other);
            let (one, other) = (Namespace::new(one).unwrap(), Namespace::new(other).unwrap());
            prop_assert_ne!(Key::new(x).unwrap().below(&one), Key::new(y).unwrap().below(&other));
        }

        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = Key::new(&text);
            let _ = KeyPrefix::new(&text);
            let _ = Namespace::new(&text);
        }
    }
}
