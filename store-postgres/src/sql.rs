use std::sync::Arc;

/// Every statement of the store, made once for its table.
///
/// The names of schema and tables are the only things that are written into the text, quoted and of a checked alphabet;
/// all else is a bind parameter.
///
/// Rules that hold in each of them:
///
/// - What can be answered from the statement's snapshot is, without a lock: an entry that was live when the statement
///   started (`statement_timestamp()`) is one that exists. The clock of a later moment must not judge an old snapshot,
///   or it buries what has been prolonged meanwhile.
/// - What is to be written is locked first and judged after, by the clock of that moment (`clock_timestamp()`), or
///   what expired during the wait would be revived.
/// - A key without a row has nothing that could be locked, and an insert waits for another of the same key whose
///   transaction is open. So whoever inserts takes an advisory lock of the transaction first: it can be tried.
/// - Where the snapshot was too old or a lock was taken nothing is done, the answer says so, and it is sent again.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) write: Forms,
    pub(crate) read: Forms,
    pub(crate) scan: Arc<str>,
    pub(crate) purge: Arc<str>,
    pub(crate) turn: Arc<str>,
    pub(crate) is_there: Arc<str>,
    pub(crate) notify: Arc<str>,
    pub(crate) admit: Arc<str>,
    pub(crate) admitted: Arc<str>,
    pub(crate) schema: String,
    /// The table's name as the server finds it.
    pub(crate) table: String,
    /// Where hints go: a name for `LISTEN`.
    pub(crate) channel: String,
}

/// One statement for items, in the forms that it is sent in.
#[derive(Debug)]
pub(crate) struct Forms {
    /// Many items, none of which waits for a lock.
    pub(crate) many: Arc<str>,
    /// One item, which waits for no lock.
    pub(crate) one: Arc<str>,
    /// One item, which waits for a lock for as long as its last parameter says.
    pub(crate) alone: Arc<str>,
    /// One item in the transaction of a caller, who has limits of his own.
    pub(crate) within: Arc<str>,
    /// The same as the last statement of a transaction, which the server ends where its commit does not come in the time
    /// that its last parameter says.
    pub(crate) last: Arc<str>,
}

impl Forms {
    fn of(statement: impl Fn(Locks, Items) -> String) -> Self {
        let form = |locks, items| Arc::from(statement(locks, items));
        Self {
            many: form(Locks::Skip, Items::Many),
            one: form(Locks::Skip, Items::One),
            alone: form(Locks::WaitLimited, Items::One),
            within: form(Locks::Wait, Items::One),
            last: form(Locks::WaitLast, Items::One),
        }
    }
}

/// How many items a statement is for. The server takes arrays that it does not know yet for ten items, and so would plan
/// a statement for one anew each time, since each time it turns out better than that; and to plan it costs as much as
/// to run it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Items {
    Many,
    One,
}

impl Items {
    fn limit(self) -> &'static str {
        match self {
            Self::Many => "",
            Self::One => "LIMIT 1",
        }
    }
}

/// What a write does. The numbers are those in the statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i16)]
pub(crate) enum Kind {
    Add = 0,
    Replace = 1,
    Remove = 2,
    Expire = 3,
    Set = 4,
}

/// How a statement treats what another has locked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Locks {
    Skip,
    WaitLimited,
    Wait,
    /// As [`Wait`](Self::Wait). A link that breaks without a word would leave the transaction open, and its rows locked,
    /// until the server finds that out, which takes hours.
    WaitLast,
}

/// Microseconds since 1970, by the server's clock at that very moment.
const CLOCK: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
/// The same, at the start of the statement.
const START: &str = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint";

impl Sql {
    pub(crate) fn new(schema: &str, prefix: &str, unlogged: bool) -> Self {
        let entries = format!("\"{schema}\".\"{prefix}entries\"");
        let fences = format!("\"{schema}\".\"{prefix}fences\"");
        let statement = |text: String| Arc::<str>::from(text);
        Self {
            write: Forms::of(|locks, items| write(&entries, locks, items)),
            read: Forms::of(|locks, items| read(&entries, locks, items)),
            scan: statement(scan(&entries)),
            purge: statement(purge(&entries)),
            turn: statement(turn(&entries)),
            is_there: statement(
                "SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NOT NULL AS is_there, \
                 coalesce((SELECT relpersistence = 'u' FROM pg_class WHERE oid = to_regclass($1)), false) AS is_unlogged"
                    .to_owned(),
            ),
            notify: statement("SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload".to_owned()),
            admit: statement(admit(&fences)),
            admitted: statement(format!("SELECT token FROM {fences} WHERE resource = $1")),
            schema: definition(schema, prefix, unlogged),
            channel: format!("leasehold_{:016x}", gate(entries.as_bytes(), b"")),
            table: entries,
        }
    }

    /// The name of the table of fencing tokens as the server finds it.
    pub(crate) fn fences(&self) -> String {
        format!("{}fences\"", self.table.trim_end_matches("entries\""))
    }

    /// The number of the advisory lock that an insert of this key takes.
    pub(crate) fn gate(&self, key: &[u8]) -> i64 {
        gate(self.table.as_bytes(), key)
    }
}

// FNV-1a: the number has to be the same in every version and every process. Two keys with one number wait for each
// other and nothing worse.
fn gate(table: &[u8], key: &[u8]) -> i64 {
    let bytes = table.iter().chain(&[0]).chain(key);
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash.cast_signed()
}

/// Deadlines and revisions are microseconds since 1970, in which a revision is minted anyway. A row without a value is
/// a tombstone: it ended when it was removed. No column but the key is indexed, so that every update can stay within
/// its page, for which a part of each page is left free.
fn definition(schema: &str, prefix: &str, unlogged: bool) -> String {
    let unlogged = if unlogged { "UNLOGGED " } else { "" };
    // Of the schema, as stores of several prefixes may make it.
    let lock = gate(schema.as_bytes(), b"");
    let make_schema = match schema {
        "public" => String::new(),
        // `IF NOT EXISTS` asks first whether the user may make schemas, and then whether it is there.
        _ => format!(
            "DO $$ BEGIN IF to_regnamespace('\"{schema}\"') IS NULL THEN CREATE SCHEMA \"{schema}\"; END IF; END $$;\n"
        ),
    };
    // Sent as one text this is one transaction, which the lock of the first line lasts for.
    format!(
        r#"SELECT pg_advisory_xact_lock({lock});
{make_schema}CREATE {unlogged}TABLE IF NOT EXISTS "{schema}"."{prefix}entries" (
    key bytea PRIMARY KEY,
    value bytea,
    revision bigint NOT NULL,
    ends bigint,
    idle bigint,
    at_most bigint
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.1);
CREATE TABLE IF NOT EXISTS "{schema}"."{prefix}fences" (
    resource bytea PRIMARY KEY,
    token bigint NOT NULL
) WITH (fillfactor = 60);
"#
    )
}

fn is_live(value: &str, ends: &str, at: &str) -> String {
    format!("({value} IS NOT NULL AND ({ends} IS NULL OR {ends} > {at}))")
}

/// What is set for the rest of the transaction.
fn limits(locks: Locks, limit: &str) -> String {
    match locks {
        Locks::WaitLimited => format!("SELECT set_config('lock_timeout', {limit}, true)"),
        Locks::WaitLast => format!("SELECT set_config('idle_in_transaction_session_timeout', {limit}, true)"),
        Locks::Skip | Locks::Wait => "SELECT 1".to_owned(),
    }
}

/// It answers with rows of a key, and joins nothing for that: what the planner takes for ten rows can be thousands, and
/// then each such join costs their square. A key without a row is one to be sent again.
fn write(entries: &str, locks: Locks, items: Items) -> String {
    let limit = items.limit();
    let seen_live = is_live("e.value", "e.ends", START);
    let still_live = is_live("old_value", "old_ends", "now");
    let skip = if locks == Locks::Skip { "SKIP LOCKED" } else { "" };
    // `pg_advisory_xact_lock` answers nothing, which reads as the empty text.
    let gate = match locks {
        Locks::Skip => "pg_try_advisory_xact_lock(w.gate)",
        Locks::WaitLimited | Locks::Wait | Locks::WaitLast => "pg_advisory_xact_lock(w.gate)::text = ''",
    };
    let limits = limits(locks, "$9");
    format!(
        r#"WITH limits AS MATERIALIZED ({limits}),
asked AS MATERIALIZED (
    SELECT a.*, e.key IS NOT NULL AS seen, e.value AS seen_value, e.ends AS seen_ends, coalesce({seen_live}, false) AS live
    FROM (SELECT * FROM unnest($1::bytea[], $2::smallint[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bigint[],
        $7::bigint[], $8::bigint[]) AS given(key, kind, expected, value, ttl, idle, at_most, gate) {limit}) a
    LEFT JOIN LATERAL (SELECT * FROM {entries} t WHERE t.key = a.key LIMIT 1) e ON true
),
wanted AS MATERIALIZED (
    SELECT a.*, CASE kind WHEN 0 THEN NOT live WHEN 4 THEN true
        ELSE live AND (expected IS NULL OR seen_value = expected) END AS open
    FROM asked a
),
held AS MATERIALIZED (
    SELECT w.key, w.kind, w.expected, w.value, w.ttl, w.idle, w.at_most, e.value AS old_value, e.ends AS old_ends, {CLOCK} AS now
    FROM (SELECT w.* FROM limits, wanted w WHERE w.open AND w.seen ORDER BY w.key OFFSET 0) w
    CROSS JOIN LATERAL (SELECT * FROM {entries} t WHERE t.key = w.key FOR NO KEY UPDATE {skip}) e
),
judged AS MATERIALIZED (
    SELECT h.*, CASE kind WHEN 0 THEN NOT {still_live} WHEN 4 THEN true
        ELSE {still_live} AND (expected IS NULL OR old_value = expected) END AS applies
    FROM held h
),
gated AS MATERIALIZED (
    SELECT w.*, {CLOCK} AS now
    FROM (SELECT w.* FROM limits, wanted w WHERE w.kind IN (0, 4) AND NOT w.seen ORDER BY w.key OFFSET 0) w
    WHERE {gate}
),
inserted AS (
    INSERT INTO {entries} (key, value, revision, ends, idle, at_most)
    SELECT key, value, now, now + ttl, idle, now + at_most FROM gated ORDER BY key
    ON CONFLICT (key) DO NOTHING
    RETURNING key, revision
),
updated AS (
    UPDATE {entries} e SET
        value = CASE j.kind WHEN 2 THEN NULL WHEN 3 THEN e.value ELSE j.value END,
        revision = CASE WHEN j.kind IN (2, 3) THEN e.revision ELSE greatest(e.revision + 1, j.now) END,
        ends = CASE j.kind WHEN 2 THEN j.now ELSE j.now + j.ttl END,
        idle = j.idle,
        at_most = j.now + j.at_most
    FROM judged j WHERE e.key = j.key AND j.applies
    RETURNING e.key, e.revision
)
SELECT key, 1 AS answer, revision, NULL::bytea AS value, NULL::bigint AS time_left FROM inserted
UNION ALL
SELECT key, 1, revision, NULL, NULL FROM updated
UNION ALL
SELECT key, 0, NULL, CASE kind WHEN 0 THEN old_value END, old_ends - now FROM judged WHERE NOT applies
UNION ALL
SELECT key, 0, NULL, CASE kind WHEN 0 THEN seen_value END, seen_ends - {START} FROM wanted WHERE NOT open"#
    )
}

/// It answers with rows of a key. Where there are several the highest number counts, and where there is none the key is
/// not there.
fn read(entries: &str, locks: Locks, items: Items) -> String {
    let limit = items.limit();
    let seen_live = is_live("t.value", "t.ends", START);
    let still_live = is_live("e.value", "e.ends", CLOCK);
    let skip = if locks == Locks::Skip { "SKIP LOCKED" } else { "" };
    let limits = limits(locks, "$2");
    format!(
        r#"WITH limits AS MATERIALIZED ({limits}),
seen AS MATERIALIZED (
    SELECT e.*
    FROM (SELECT key FROM unnest($1::bytea[]) AS given(key) {limit}) a
    CROSS JOIN LATERAL (SELECT * FROM {entries} t WHERE t.key = a.key AND {seen_live} LIMIT 1) e
),
held AS MATERIALIZED (
    SELECT e.key
    FROM (SELECT s.key FROM limits, seen s WHERE s.idle IS NOT NULL ORDER BY s.key OFFSET 0) w
    CROSS JOIN LATERAL (SELECT t.key FROM {entries} t WHERE t.key = w.key FOR NO KEY UPDATE {skip}) e
),
slid AS (
    UPDATE {entries} e
    SET ends = CASE WHEN e.idle IS NULL THEN e.ends ELSE least(e.at_most, {CLOCK} + e.idle) END
    FROM held h WHERE e.key = h.key AND {still_live}
    RETURNING e.key, e.value, e.ends - {CLOCK} AS time_left
)
SELECT key, 1 AS answer, value, ends - {START} AS time_left FROM seen WHERE idle IS NULL
UNION ALL
SELECT key, 1, value, time_left FROM slid
UNION ALL
SELECT key, 0, NULL, NULL FROM held
UNION ALL
SELECT key, -1, NULL, NULL FROM seen WHERE idle IS NOT NULL"#
    )
}

/// Looks at a bounded number of rows, so that a page costs the same however many of them are dead.
fn scan(entries: &str) -> String {
    let live = is_live("t.value", "t.ends", START);
    format!(
        "SELECT t.key, {live} AS live FROM {entries} t WHERE t.key >= $1 AND t.key > $2 AND ($3::bytea IS NULL OR t.key < $3) \
         ORDER BY t.key LIMIT $4"
    )
}

/// Walks on along the primary key: an index for deadlines would cost every prolonging an index entry, and every
/// update its place in the page. Of who has the turn it prolongs it, and notes in its row how far the walk has come; at
/// the end of the walk, that the next begins anew, and when. Whose turn it is no more is told so.
fn purge(entries: &str) -> String {
    let due = |row: &str| format!("greatest({row}.ends, {row}.revision) + $3 < {CLOCK} AND {row}.ends IS NOT NULL");
    let (page_due, row_due) = (due("t"), due("e"));
    format!(
        r#"WITH page AS MATERIALIZED (
    SELECT t.key, {page_due} AS due FROM {entries} t WHERE t.key > $1 ORDER BY t.key LIMIT $2
),
held AS MATERIALIZED (
    SELECT e.key
    FROM (SELECT key FROM page WHERE due ORDER BY key OFFSET 0) p
    CROSS JOIN LATERAL (SELECT * FROM {entries} e WHERE e.key = p.key AND {row_due} FOR UPDATE SKIP LOCKED) e
),
purged AS (DELETE FROM {entries} e USING held h WHERE e.key = h.key AND {row_due} RETURNING 1),
walked AS (SELECT CASE WHEN count(*) = $2 THEN (SELECT key FROM page ORDER BY key DESC LIMIT 1) END AS last FROM page),
turn AS (
    UPDATE {entries} e SET
        value = coalesce(w.last, '\x00'),
        ends = {CLOCK} + CASE WHEN w.last IS NULL THEN $5 ELSE $6 END
    FROM walked w WHERE e.key = '\x00' AND e.revision = $4
    RETURNING 1
)
SELECT (SELECT last FROM walked) AS last, (SELECT count(*) FROM purged) AS purged, EXISTS (SELECT FROM turn) AS in_turn"#
    )
}

/// One process at a time has the turn to sweep, and its number is its own. The row's key is none that a caller can have,
/// and before all of them. It answers after which key to go on.
fn turn(entries: &str) -> String {
    format!(
        r#"INSERT INTO {entries} AS e (key, value, revision, ends) VALUES ('\x00', '\x00', {CLOCK}, {CLOCK} + $1)
ON CONFLICT (key) DO UPDATE SET ends = excluded.ends, revision = greatest(e.revision + 1, excluded.revision)
WHERE e.ends <= {CLOCK}
RETURNING value AS after, revision AS turn"#
    )
}

/// What is refused by what the statement can see is refused without a lock, as a token only rises. `ON CONFLICT` locks the
/// row also where its condition says no.
fn admit(fences: &str) -> String {
    format!(
        r#"WITH newer AS MATERIALIZED (
    SELECT token FROM {fences} WHERE resource = $1 AND (token > $2 OR (token = $2 AND NOT $3))
),
noted AS (
    INSERT INTO {fences} AS f (resource, token) SELECT $1, $2 WHERE NOT EXISTS (SELECT FROM newer)
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token
    WHERE f.token < excluded.token OR (f.token = excluded.token AND $3)
    RETURNING token
)
SELECT token, true AS admitted FROM noted UNION ALL SELECT token, false FROM newer"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_of_a_key_is_the_same_for_ever() {
        assert_eq!(gate(b"", b"").cast_unsigned(), 0xaf63_bd4c_8601_b7df);
        let sql = Sql::new("public", "leasehold_", false);
        assert_ne!(sql.gate(b"a"), sql.gate(b"b"));
        assert_ne!(sql.gate(b"a"), Sql::new("public", "other_", false).gate(b"a"));
        assert_eq!(sql.fences(), r#""public"."leasehold_fences""#);
    }
}
