use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use leasehold_core::{Entry, Expiry, Key, Outcome, Revision, Ttl};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::error::Failure;
use crate::parameters::Parameters;
use crate::sql::{Forms, Kind, Sql};

/// One item of a statement. Items of one type go together.
pub(crate) trait Request: Send + Sync + 'static {
    type Answer: Send + 'static;

    fn key(&self) -> &Key;

    /// How many bytes it sends, about.
    fn weight(&self) -> usize;

    /// The statement for it.
    fn statement(sql: &Sql) -> &Forms;

    /// The parameters for items of different keys, without the limit of a wait.
    fn parameters(items: &[&Self], sql: &Sql) -> Parameters;

    /// What it says that there is no row for an item; nothing where it has to be sent again.
    const ABSENT: Option<Self::Answer>;

    /// The answer to an item, of its row.
    fn answer(row: &PgRow, was_done: bool) -> Result<Self::Answer, sqlx::Error>;

    /// Whether the answer says that what others wait for may have come.
    fn is_change(&self, answer: &Self::Answer) -> bool;
}

/// Reads the answers in the order of the items; nothing for those that have to be sent again.
pub(crate) fn answers<R: Request>(rows: &[PgRow], items: &[&R]) -> Result<Vec<Option<R::Answer>>, Failure> {
    let places: HashMap<&[u8], usize> =
        items.iter().enumerate().map(|(place, item)| (item.key().as_bytes(), place)).collect();
    let mut best: Vec<Option<(i32, &PgRow)>> = vec![None; items.len()];
    let read =
        |row: &PgRow| -> Result<(Vec<u8>, i32), sqlx::Error> { Ok((row.try_get("key")?, row.try_get("answer")?)) };
    for row in rows {
        let (key, answer) = read(row).map_err(|_| Failure::unexpected())?;
        let place = *places.get(&*key).ok_or_else(Failure::unexpected)?;
        if best[place].is_none_or(|(other, _)| answer > other) {
            best[place] = Some((answer, row));
        }
    }
    let read = |best: Option<(i32, &PgRow)>| match best {
        Some((1, row)) => R::answer(row, true).map(Some),
        Some((0, row)) => R::answer(row, false).map(Some),
        Some(_) => Ok(None),
        None => Ok(R::ABSENT),
    };
    best.into_iter().map(|best| read(best).map_err(|_| Failure::unexpected())).collect()
}

/// A write of any kind.
#[derive(Clone)]
pub(crate) struct Write {
    kind: Kind,
    key: Key,
    expected: Option<Bytes>,
    value: Option<Bytes>,
    ttl: Option<i64>,
    idle: Option<i64>,
    at_most: Option<i64>,
}

/// What a write answers.
pub(crate) enum Written {
    /// It was done; with the revision, where one is minted or kept.
    Applied(Revision),
    /// It was not; with what is there, for an add.
    NotApplied(Option<Entry>),
}

impl Write {
    pub(crate) fn add(key: &Key, value: Bytes, ttl: Ttl) -> Self {
        Self { value: Some(value), ttl: Some(micros(ttl)), ..Self::of(Kind::Add, key) }
    }

    pub(crate) fn replace(key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Self {
        let expected = Some(Bytes::copy_from_slice(expected));
        Self { expected, value: Some(value), ttl: Some(micros(ttl)), ..Self::of(Kind::Replace, key) }
    }

    /// Whatever the value is, if none is expected.
    pub(crate) fn remove(key: &Key, expected: Option<&[u8]>) -> Self {
        Self { expected: expected.map(Bytes::copy_from_slice), ..Self::of(Kind::Remove, key) }
    }

    pub(crate) fn expire(key: &Key, expected: &[u8], ttl: Ttl) -> Self {
        let expected = Some(Bytes::copy_from_slice(expected));
        Self { expected, ttl: Some(micros(ttl)), ..Self::of(Kind::Expire, key) }
    }

    pub(crate) fn set(key: &Key, value: Bytes, expiry: Expiry) -> Self {
        let idle = expiry.idle().map(micros);
        Self {
            value: Some(value),
            ttl: expiry.first_ttl().map(micros),
            idle,
            // Only a read asks for it, and only where it slides.
            at_most: idle.and_then(|_| expiry.at_most().map(micros)),
            ..Self::of(Kind::Set, key)
        }
    }

    fn of(kind: Kind, key: &Key) -> Self {
        Self { kind, key: key.clone(), expected: None, value: None, ttl: None, idle: None, at_most: None }
    }
}

impl Request for Write {
    type Answer = Written;

    fn key(&self) -> &Key {
        &self.key
    }

    fn weight(&self) -> usize {
        let of = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        self.key.as_bytes().len() + of(&self.expected) + of(&self.value)
    }

    fn statement(sql: &Sql) -> &Forms {
        &sql.write
    }

    fn parameters(items: &[&Self], sql: &Sql) -> Parameters {
        let items = || items.iter();
        Parameters::default()
            .many_bytes(items().map(|item| Some(item.key.as_bytes())))
            .many_small(items().map(|item| item.kind as i16))
            .many_bytes(items().map(|item| item.expected.as_deref()))
            .many_bytes(items().map(|item| item.value.as_deref()))
            .many_numbers(items().map(|item| item.ttl))
            .many_numbers(items().map(|item| item.idle))
            .many_numbers(items().map(|item| item.at_most))
            .many_numbers(items().map(|item| Some(sql.gate(item.key.as_bytes()))))
    }

    const ABSENT: Option<Written> = None;

    fn answer(row: &PgRow, was_done: bool) -> Result<Written, sqlx::Error> {
        if !was_done {
            return Ok(Written::NotApplied(entry(row)?));
        }
        let revision: i64 = row.try_get("revision")?;
        let revision = u64::try_from(revision).ok().and_then(|number| Revision::new(number).ok());
        revision.map(Written::Applied).ok_or(sqlx::Error::RowNotFound)
    }

    fn is_change(&self, answer: &Written) -> bool {
        matches!(answer, Written::Applied(_)) && matches!(self.kind, Kind::Replace | Kind::Remove | Kind::Set)
    }
}

impl Written {
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome::from_applied(matches!(self, Self::Applied(_)))
    }
}

/// A read, which makes an entry that slides live on.
#[derive(Clone)]
pub(crate) struct Read(pub(crate) Key);

impl Request for Read {
    type Answer = Option<Entry>;

    fn key(&self) -> &Key {
        &self.0
    }

    fn weight(&self) -> usize {
        self.0.as_bytes().len()
    }

    fn statement(sql: &Sql) -> &Forms {
        &sql.read
    }

    fn parameters(items: &[&Self], _: &Sql) -> Parameters {
        Parameters::default().many_bytes(items.iter().map(|item| Some(item.0.as_bytes())))
    }

    const ABSENT: Option<Option<Entry>> = Some(None);

    fn answer(row: &PgRow, was_done: bool) -> Result<Option<Entry>, sqlx::Error> {
        if was_done { entry(row) } else { Ok(None) }
    }

    fn is_change(&self, _: &Option<Entry>) -> bool {
        false
    }
}

fn entry(row: &PgRow) -> Result<Option<Entry>, sqlx::Error> {
    let Some(value) = row.try_get::<Option<Vec<u8>>, _>("value")? else { return Ok(None) };
    let time_left: Option<i64> = row.try_get("time_left")?;
    // It lived when it was judged, so the least that it has left is the smallest step.
    let time_left = time_left.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0).max(1)));
    Ok(Some(Entry { value: value.into(), time_left }))
}

// At most 366 days, so it fits.
fn micros(ttl: Ttl) -> i64 {
    i64::try_from(ttl.as_millis()).map_or(i64::MAX, |millis| millis.saturating_mul(1000))
}
