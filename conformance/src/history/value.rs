use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The bytes of a value, written as text where they are plain text, and else as `0x` and hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(Bytes);

/// What announces hexadecimal digits; text that begins so is written in them too.
const HEX: &str = "0x";

impl Value {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn plain(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok().filter(|text| !text.starts_with(HEX) && !text.contains(char::is_control))
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.plain() {
            Some(text) => f.write_str(text),
            None => {
                f.write_str(HEX)?;
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let Some(digits) = text.strip_prefix(HEX) else { return Ok(text.into()) };
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let byte = |pair: &[u8]| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
        match bytes {
            Some(bytes) => Ok(Self(bytes.into())),
            None => Err(de::Error::custom(format_args!("{text:?} is not a value in hexadecimal digits"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back_as_they_were() {
        for bytes in [&b""[..], b"0.1", b"0x", b"0x41", b"\0\xff", "ü\n".as_bytes(), "ü".as_bytes()] {
            let value = Value::from(bytes);
            let json = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), value, "{json}");
        }
        assert_eq!(Value::from("0.1").to_string(), "0.1");
        assert_eq!(Value::from(&b"\0\xff"[..]).to_string(), "0x00ff");
        for broken in ["\"0x4\"", "\"0xzz\"", "\"0xü\""] {
            assert!(serde_json::from_str::<Value>(broken).is_err(), "{broken}");
        }
    }
}
