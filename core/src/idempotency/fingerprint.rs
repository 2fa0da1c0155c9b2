use std::fmt;
use std::io;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::{Code, Error, ErrorKind};

/// What tells one payload from another: a SHA-256 digest over length-framed parts, so that no two payloads that differ
/// have the same one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; Self::LEN]);

impl Fingerprint {
    pub(super) const LEN: usize = 32;

    /// The fingerprint of a value as JSON has it, in which nothing, a unit and a number that is none are all `null`. The
    /// order of a map's keys plays no part; that of a list does, and so does the difference of `1` and `1.0`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a value that JSON cannot hold, such as a map whose keys are no strings.
    pub fn of<P: Serialize + ?Sized>(payload: &P) -> Result<Self, Error> {
        let value = serde_json::to_value(payload).map_err(unwritable)?;
        let mut digest = Framed::new("value");
        digest.value(&value);
        Ok(digest.finish())
    }

    /// The same, and `InvalidInput` for a payload of more bytes of JSON than `longest`. No more of it is looked at: it is
    /// counted before it is made into a value, which takes several times its size.
    pub(super) fn of_at_most<P: Serialize + ?Sized>(payload: &P, longest: usize) -> Result<Self, Error> {
        match serde_json::to_writer(Counted { left: longest }, payload) {
            Ok(()) => Self::of(payload),
            Err(error) if error.is_io() => {
                Err(invalid(format!("a payload must be at most {longest} bytes of JSON")).with_code(Code::InvalidKey))
            }
            Err(error) => Err(unwritable(error)),
        }
    }

    /// The fingerprint of parts that come as bytes, such as a method, a path and a body. Each counts with its length.
    pub fn of_parts<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> Self {
        let mut digest = Framed::new("parts");
        for part in parts {
            digest.frame(b'p', part);
        }
        digest.finish()
    }

    pub(super) fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

// Of a payload with few possible values it would tell which.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(…)")
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, "fingerprint", message)
}

fn unwritable(error: serde_json::Error) -> Error {
    invalid("the payload cannot be written as JSON".to_owned()).with_source(error)
}

/// Takes so many bytes, and then fails.
struct Counted {
    left: usize,
}

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A digest that says of each piece what it is and how long, so that no piece runs into the next.
struct Framed {
    digest: Sha256,
}

impl Framed {
    fn new(domain: &str) -> Self {
        let mut framed = Self { digest: Sha256::new() };
        framed.frame(b'd', domain.as_bytes());
        framed
    }

    fn frame(&mut self, what: u8, bytes: &[u8]) {
        self.length(what, bytes.len());
        self.digest.update(bytes);
    }

    fn length(&mut self, what: u8, length: usize) {
        self.digest.update([what]);
        self.digest.update((length as u64).to_be_bytes());
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.length(b'n', 0),
            Value::Bool(truth) => self.length(b'b', usize::from(*truth)),
            Value::Number(number) => self.frame(b'#', number.to_string().as_bytes()),
            Value::String(text) => self.frame(b's', text.as_bytes()),
            Value::Array(items) => {
                self.length(b'a', items.len());
                items.iter().for_each(|item| self.value(item));
            }
            Value::Object(fields) => {
                // Sorted here: another crate of the same build can have switched on that maps keep their order.
                let mut fields: Vec<_> = fields.iter().collect();
                fields.sort_unstable_by_key(|(name, _)| *name);
                self.length(b'o', fields.len());
                for (name, value) in fields {
                    self.frame(b'k', name.as_bytes());
                    self.value(value);
                }
            }
        }
    }

    fn finish(self) -> Fingerprint {
        Fingerprint(self.digest.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn of(value: &Value) -> Fingerprint {
        Fingerprint::of(value).unwrap()
    }

    #[test]
    fn the_order_of_a_map_plays_no_part_and_that_of_a_list_does() {
        let names = ["a", "b", "c", "d", "e", "f"];
        let hashed: HashMap<_, _> = names.into_iter().map(|name| (name, 1)).collect();
        let sorted: BTreeMap<_, _> = names.into_iter().map(|name| (name, 1)).collect();
        assert_eq!(Fingerprint::of(&hashed).unwrap(), Fingerprint::of(&sorted).unwrap());
        assert_ne!(of(&json!([1, 2])), of(&json!([2, 1])));
    }

    #[test]
    fn what_would_collide_when_joined_stays_apart() {
        let all = [
            json!(null),
            json!(false),
            json!(true),
            json!(""),
            json!("null"),
            json!(0),
            json!("0"),
            json!(0.0),
            json!([]),
            json!([[]]),
            json!([[], []]),
            json!({}),
            json!([{}]),
            json!(["a", "b"]),
            json!(["ab"]),
            json!({"a": "b"}),
            json!(["a", "b", {}]),
            json!({"a": {"b": 1}}),
            json!({"a": 1, "b": 1}),
        ];
        for (place, one) in all.iter().enumerate() {
            for other in &all[place + 1..] {
                assert_ne!(of(one), of(other), "{one} and {other}");
            }
        }
        let parts = |parts: &[&[u8]]| Fingerprint::of_parts(parts.iter().copied());
        assert_ne!(parts(&[b"a", b"b"]), parts(&[b"ab"]));
        assert_ne!(parts(&[b"ab", b""]), parts(&[b"", b"ab"]));
        assert_ne!(parts(&[]), parts(&[b""]));
    }

    #[test]
    fn a_value_that_json_cannot_hold_is_refused() {
        let error = Fingerprint::of(&BTreeMap::from([((1, 2), 3)])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn no_more_of_a_payload_is_looked_at_than_it_may_have() {
        use std::cell::Cell;

        use serde::ser::SerializeSeq;

        struct Endless(Cell<u32>);

        impl Serialize for Endless {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut items = serializer.serialize_seq(None)?;
                loop {
                    self.0.set(self.0.get() + 1);
                    items.serialize_element("item")?;
                }
            }
        }

        let endless = Endless(Cell::new(0));
        let error = Fingerprint::of_at_most(&endless, 1_000).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidInput, Some(Code::InvalidKey)));
        assert!(endless.0.get() < 200, "{} items of 7 bytes were asked for", endless.0.get());
        assert!(Fingerprint::of_at_most("12345678", 10).is_ok() && Fingerprint::of_at_most("123456789", 10).is_err());
    }

    proptest! {
        #[test]
        fn parts_that_differ_have_fingerprints_that_differ(
            one in prop::collection::vec(prop::collection::vec(0u8..3, 0..4), 0..4),
            other in prop::collection::vec(prop::collection::vec(0u8..3, 0..4), 0..4),
        ) {
            let of = |parts: &[Vec<u8>]| Fingerprint::of_parts(parts.iter().map(Vec::as_slice));
            prop_assert_eq!(of(&one) == of(&other), one == other);
        }
    }
}
