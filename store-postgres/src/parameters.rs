use std::fmt::Write;

use sqlx::Arguments;
use sqlx::postgres::PgArguments;

use crate::error::Failure;

/// The parameters of one statement, in order.
///
/// They are bound, except behind a pooler in transaction mode. There a bound statement is not safe with this driver: it
/// parses in one exchange and binds in the next, and between them the pooler may hand the server's connection to
/// another client, and this one a connection with another statement. So there they are written into the text, which goes
/// out in one exchange; as numbers and hexadecimal digits only, so that no quoting can go wrong.
#[derive(Debug, Default)]
pub(crate) struct Parameters(Vec<Parameter>);

enum Parameter {
    Bytes(Option<Vec<u8>>),
    Text(String),
    Number(i64),
    Truth(bool),
    ManyBytes(Vec<Option<Vec<u8>>>),
    ManyTexts(Vec<String>),
    ManyNumbers(Vec<Option<i64>>),
    ManySmall(Vec<i16>),
}

impl Parameters {
    pub(crate) fn bytes(mut self, bytes: Option<&[u8]>) -> Self {
        self.0.push(Parameter::Bytes(bytes.map(<[u8]>::to_vec)));
        self
    }

    pub(crate) fn text(mut self, text: impl Into<String>) -> Self {
        self.0.push(Parameter::Text(text.into()));
        self
    }

    pub(crate) fn number(mut self, number: i64) -> Self {
        self.0.push(Parameter::Number(number));
        self
    }

    pub(crate) fn truth(mut self, truth: bool) -> Self {
        self.0.push(Parameter::Truth(truth));
        self
    }

    pub(crate) fn many_bytes<'b>(mut self, many: impl Iterator<Item = Option<&'b [u8]>>) -> Self {
        self.0.push(Parameter::ManyBytes(many.map(|bytes| bytes.map(<[u8]>::to_vec)).collect()));
        self
    }

    pub(crate) fn many_texts(mut self, many: Vec<String>) -> Self {
        self.0.push(Parameter::ManyTexts(many));
        self
    }

    pub(crate) fn many_numbers(mut self, many: impl Iterator<Item = Option<i64>>) -> Self {
        self.0.push(Parameter::ManyNumbers(many.collect()));
        self
    }

    pub(crate) fn many_small(mut self, many: impl Iterator<Item = i16>) -> Self {
        self.0.push(Parameter::ManySmall(many.collect()));
        self
    }

    /// As the driver binds them.
    pub(crate) fn bound(self) -> Result<PgArguments, Failure> {
        let mut arguments = PgArguments::default();
        for parameter in self.0 {
            match parameter {
                Parameter::Bytes(bytes) => arguments.add(bytes),
                Parameter::Text(text) => arguments.add(text),
                Parameter::Number(number) => arguments.add(number),
                Parameter::Truth(truth) => arguments.add(truth),
                Parameter::ManyBytes(many) => arguments.add(many),
                Parameter::ManyTexts(many) => arguments.add(many),
                Parameter::ManyNumbers(many) => arguments.add(many),
                Parameter::ManySmall(many) => arguments.add(many),
            }
            .map_err(|error| Failure::of(&sqlx::Error::Encode(error)))?;
        }
        Ok(arguments)
    }

    /// The statement with its parameters written in. Nothing else in it has a dollar sign.
    pub(crate) fn written_into(&self, sql: &str) -> String {
        let mut text = String::with_capacity(sql.len() * 2);
        let mut pieces = sql.split('$');
        text.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            let rest = piece.trim_start_matches(|digit: char| digit.is_ascii_digit());
            let number = piece[..piece.len() - rest.len()].parse::<usize>().unwrap_or(0);
            // A number without a parameter stays, and the server refuses it.
            match number.checked_sub(1).and_then(|place| self.0.get(place)) {
                Some(parameter) => parameter.write_to(&mut text),
                None => {
                    let _ = write!(text, "${number}");
                }
            }
            text.push_str(rest);
        }
        text
    }
}

impl Parameter {
    fn write_to(&self, text: &mut String) {
        match self {
            Self::Bytes(bytes) => write_bytes(text, bytes.as_deref()),
            Self::Text(string) => write_text(text, string),
            Self::Number(number) => write_number(text, Some(*number)),
            Self::Truth(truth) => text.push_str(if *truth { "true" } else { "false" }),
            Self::ManyBytes(many) => {
                write_array(text, many, "bytea", |text, bytes| write_bytes(text, bytes.as_deref()));
            }
            Self::ManyTexts(many) => write_array(text, many, "text", |text, string| write_text(text, string)),
            Self::ManyNumbers(many) => write_array(text, many, "bigint", |text, number| write_number(text, *number)),
            Self::ManySmall(many) => {
                write_array(text, many, "smallint", |text, number| write_number(text, Some((*number).into())));
            }
        }
    }
}

fn write_bytes(text: &mut String, bytes: Option<&[u8]>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let Some(bytes) = bytes else {
        text.push_str("NULL::bytea");
        return;
    };
    text.push_str("decode('");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text.push_str("', 'hex')");
}

fn write_text(text: &mut String, string: &str) {
    text.push_str("convert_from(");
    write_bytes(text, Some(string.as_bytes()));
    text.push_str(", 'UTF8')");
}

fn write_number(text: &mut String, number: Option<i64>) {
    // Writing to a string cannot fail.
    let _ = match number {
        Some(number) => write!(text, "({number})::bigint"),
        None => write!(text, "NULL::bigint"),
    };
}

fn write_array<T>(text: &mut String, many: &[T], kind: &str, write_one: impl Fn(&mut String, &T)) {
    text.push_str("ARRAY[");
    for (place, one) in many.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        write_one(text, one);
    }
    // Of an empty array nothing else says the type.
    text.push_str("]::");
    text.push_str(kind);
    text.push_str("[]");
}

// A parameter may be a stored value, so it is not shown.
impl std::fmt::Debug for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parameter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_parameter_is_numbers_and_digits_only() {
        let nasty = "'; DROP TABLE x; -- \\ $1";
        let parameters = Parameters::default()
            .bytes(Some(nasty.as_bytes()))
            .text(nasty)
            .many_bytes([Some(&[0, 255][..]), None].into_iter())
            .many_numbers([Some(-1), None].into_iter());
        let text = parameters.written_into("SELECT $1, $2, $3::bytea[], $4, $5");
        assert!(!text.contains("DROP"), "{text}");
        assert!(
            text.contains("ARRAY[decode('00ff', 'hex'),NULL::bytea]::bytea[]::bytea[], ARRAY[(-1)::bigint,"),
            "{text}"
        );
        assert!(text.ends_with(", $5"), "{text}");
        assert_eq!(text.matches('\'').count(), 2 + 2 + 2 + 2 + 2 + 2 + 2, "{text}");
    }
}
