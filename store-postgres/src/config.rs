use std::time::Duration;

use leasehold_core::{Capabilities, Error};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use url::Url;

use crate::error::invalid;
use crate::sql::Sql;

/// How a [`PostgresStore`](crate::PostgresStore) behaves.
///
/// ```
/// use std::time::Duration;
/// use leasehold_postgres::PostgresConfig;
///
/// let config = PostgresConfig::default().with_table_prefix("orders_").with_deadline(Duration::from_secs(1));
/// assert_eq!(config.schema, "public");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresConfig {
    /// The schema of the store's tables; `public` unless set. Letters `a-z`, digits and `_`, at most 63.
    pub schema: String,
    /// What the names of the store's tables begin with; `leasehold_` unless set. The same letters, at most 40.
    pub table_prefix: String,
    /// Whether a new table is unlogged: writes are cheaper, and a crash of the server empties it. For caches only.
    pub unlogged: bool,
    /// Whether hints come by `LISTEN`; on unless set. Without them, waiters ask again when the holder's time is up.
    pub hints: bool,
    /// Whether a pooler in transaction mode stands before the server: then no statement is prepared, what it would bind
    /// is written into its text in hexadecimal, and there are no hints. Off unless set.
    ///
    /// Who reads the server's log of statements (`log_statement`, `log_min_duration_statement`) or `pg_stat_activity` can
    /// then read keys and values. In this process the driver logs no statement of a store that connects by URL; see
    /// [`PostgresStore::new`](crate::PostgresStore::new) for a pool of the caller's.
    pub pgbouncer: bool,
    /// Whether a connection by URL asks at its start for the settings that the store's plans are best with; on unless
    /// set. A pooler in session mode refuses a start with settings that it does not know, so say off there, and give the
    /// user `plan_cache_mode = force_generic_plan`, `enable_seqscan = off` and `jit = off` if it is the store's alone.
    pub startup_settings: bool,
    /// Whether connecting by URL makes the tables; on unless set.
    pub migrate: bool,
    /// How many connections a store that connects by URL has at most, besides one for hints, and as many again for the
    /// transactions of [`run_once`](crate::PostgresStore::run_once) where it is used; 8 unless set.
    pub max_connections: u32,
    /// How many operations of this process, asked for at the same time, go in one statement at most: 1 to 1000, 64
    /// unless set. With 1 each is a statement of its own, on as many connections as there are.
    pub max_batch: u32,
    /// How long a call may take in all, with any wait for a connection; 5 s unless set. A server that refuses connections
    /// for a fifth of it counts as away. The transaction of a caller has it to begin, and to commit.
    pub deadline: Duration,
    /// How long the revision of a key is remembered after its entry has ended; 1 h unless set. It must be longer than
    /// any statement can be under way, and than the server's clock may ever step back.
    pub grace: Duration,
    /// How often one of the processes looks for what can be purged; 60 s unless set, and zero is never.
    pub sweep_interval: Duration,
    /// The longest value, in bytes; 1 MiB unless set, at most 64 MiB.
    pub max_value_len: usize,
}

impl PostgresConfig {
    /// The parameters that a URL may have; all others are the driver's, such as `sslmode` and `application_name`.
    pub const URL_PARAMETERS: &'static [&'static str] = &[
        "deadline",
        "grace",
        "hints",
        "max_batch",
        "max_connections",
        "max_value_len",
        "migrate",
        "pgbouncer",
        "schema",
        "startup_settings",
        "sweep_interval",
        "table_prefix",
        "unlogged",
    ];

    /// Sets [`schema`](Self::schema).
    #[must_use]
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Sets [`table_prefix`](Self::table_prefix).
    #[must_use]
    pub fn with_table_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.table_prefix = prefix.into();
        self
    }

    /// Sets [`unlogged`](Self::unlogged).
    #[must_use]
    pub fn with_unlogged(mut self, unlogged: bool) -> Self {
        self.unlogged = unlogged;
        self
    }

    /// Sets [`hints`](Self::hints).
    #[must_use]
    pub fn with_hints(mut self, hints: bool) -> Self {
        self.hints = hints;
        self
    }

    /// Sets [`pgbouncer`](Self::pgbouncer).
    #[must_use]
    pub fn with_pgbouncer(mut self, pgbouncer: bool) -> Self {
        self.pgbouncer = pgbouncer;
        self
    }

    /// Sets [`startup_settings`](Self::startup_settings).
    #[must_use]
    pub fn with_startup_settings(mut self, startup_settings: bool) -> Self {
        self.startup_settings = startup_settings;
        self
    }

    /// Sets [`migrate`](Self::migrate).
    #[must_use]
    pub fn with_migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Sets [`max_connections`](Self::max_connections).
    #[must_use]
    pub fn with_max_connections(mut self, count: u32) -> Self {
        self.max_connections = count;
        self
    }

    /// Sets [`max_batch`](Self::max_batch).
    #[must_use]
    pub fn with_max_batch(mut self, count: u32) -> Self {
        self.max_batch = count;
        self
    }

    /// Sets [`deadline`](Self::deadline).
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets [`grace`](Self::grace).
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets [`sweep_interval`](Self::sweep_interval).
    #[must_use]
    pub fn with_sweep_interval(mut self, interval: Duration) -> Self {
        self.sweep_interval = interval;
        self
    }

    /// Sets [`max_value_len`](Self::max_value_len).
    #[must_use]
    pub fn with_max_value_len(mut self, len: usize) -> Self {
        self.max_value_len = len;
        self
    }

    /// The statements that make the store's tables, for those who migrate by their own means. They can be repeated, and
    /// sent as one text they are one transaction.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a configuration that breaks a rule.
    pub fn schema_sql(&self) -> Result<String, Error> {
        Ok(self.sql()?.schema)
    }

    pub(crate) fn sql(&self) -> Result<Sql, Error> {
        self.check()?;
        Ok(Sql::new(&self.schema, &self.table_prefix, self.unlogged))
    }

    fn check(&self) -> Result<(), Error> {
        let is_plain = |name: &str, longest: usize| {
            name.len() <= longest
                && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
                && !name.starts_with(|first: char| first.is_ascii_digit())
        };
        if self.schema.is_empty() || !is_plain(&self.schema, 63) {
            return Err(invalid(format!("a schema is 1 to 63 of a-z, 0-9 and _, and {:?} is not", self.schema)));
        }
        if !is_plain(&self.table_prefix, 40) {
            let prefix = &self.table_prefix;
            return Err(invalid(format!("a table prefix is at most 40 of a-z, 0-9 and _, and {prefix:?} is not")));
        }
        if self.deadline.is_zero() {
            return Err(invalid("the deadline must be above zero"));
        }
        // No server has more, and a pool has the memory for all of them from the start.
        if !(1..=262_143).contains(&self.max_connections) {
            return Err(invalid("max_connections must be 1 to 262143"));
        }
        if !(1..=1000).contains(&self.max_batch) {
            return Err(invalid("max_batch must be 1 to 1000"));
        }
        const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);
        if self.grace > YEAR || self.grace < self.deadline.saturating_mul(2) {
            return Err(invalid("the grace time must be at least twice the deadline, and at most 366 days"));
        }
        if self.max_value_len > 64 << 20 {
            return Err(invalid("max_value_len must be at most 64 MiB"));
        }
        Ok(())
    }

    /// Splits a URL into what is the driver's and what is ours. What it says of ours goes before what is there.
    pub(crate) fn with_url(mut self, url: &str) -> Result<(Self, PgConnectOptions), Error> {
        let mut url = Url::parse(url).map_err(|error| invalid("it is not a URL").with_source(error))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(invalid(format!("{}:// is neither postgres:// nor postgresql://", url.scheme())));
        }
        let mut of_driver = Vec::new();
        for (name, value) in url.query_pairs().into_owned() {
            if is_of_driver(&name) {
                of_driver.push((name, value));
            } else {
                self.set(&name, &value, ", and the driver's")?;
            }
        }
        url.set_query(None);
        if !of_driver.is_empty() {
            url.query_pairs_mut().extend_pairs(of_driver);
        }
        self.check()?;
        // What the driver says of a URL may show a part of it.
        let options = PgConnectOptions::from_url(&url).map_err(|_| invalid("the driver cannot read the URL"))?;
        let is_required = !matches!(options.get_ssl_mode(), PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer);
        if is_required && !cfg!(feature = "tls") {
            return Err(invalid("this sslmode needs the feature `tls`, which is not compiled in"));
        }
        Ok((self, options))
    }

    fn set(&mut self, name: &str, value: &str, or_else: &str) -> Result<(), Error> {
        let Self {
            schema,
            table_prefix,
            unlogged,
            hints,
            pgbouncer,
            startup_settings,
            migrate,
            max_connections,
            max_batch,
            deadline,
            grace,
            sweep_interval,
            max_value_len,
        } = self;
        match name {
            "schema" => value.clone_into(schema),
            "table_prefix" => value.clone_into(table_prefix),
            "unlogged" => *unlogged = truth(name, value)?,
            "hints" => *hints = truth(name, value)?,
            "pgbouncer" => *pgbouncer = truth(name, value)?,
            "startup_settings" => *startup_settings = truth(name, value)?,
            "migrate" => *migrate = truth(name, value)?,
            "max_connections" => *max_connections = number(name, value)?,
            "max_batch" => *max_batch = number(name, value)?,
            "deadline" => *deadline = duration(name, value)?,
            "grace" => *grace = duration(name, value)?,
            "sweep_interval" => *sweep_interval = duration(name, value)?,
            "max_value_len" => *max_value_len = number(name, value)?,
            _ => {
                let known = Self::URL_PARAMETERS.join(", ");
                return Err(invalid(format!("there is no parameter `{name}`; there are: {known}{or_else}")));
            }
        }
        Ok(())
    }
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            schema: "public".to_owned(),
            table_prefix: "leasehold_".to_owned(),
            unlogged: false,
            hints: true,
            pgbouncer: false,
            startup_settings: true,
            migrate: true,
            max_connections: 8,
            max_batch: 64,
            deadline: Duration::from_secs(5),
            grace: Duration::from_secs(3600),
            sweep_interval: Duration::from_secs(60),
            max_value_len: Capabilities::DEFAULT_MAX_VALUE_LEN,
        }
    }
}

/// A table of a configuration file, with the names of [`URL_PARAMETERS`](PostgresConfig::URL_PARAMETERS) and durations
/// like `200ms`, `5s` and `2m`. What is not named is as it is unless set, and what has no such name is an error. Where
/// the database is, and its password, is not a part of this.
///
/// ```
/// # use leasehold_postgres::{PostgresConfig, PostgresStore};
/// #[derive(serde::Deserialize)]
/// struct Leases {
///     url: String,
///     #[serde(flatten)]
///     store: PostgresConfig,
/// }
///
/// let leases: Leases = serde_json::from_str(
///     r#"{ "url": "postgres://app:secret@db.example/orders", "deadline": "2s", "max_connections": 4 }"#,
/// )?;
/// # async fn connect(leases: Leases) -> Result<(), leasehold_core::Error> {
/// let store = PostgresStore::connect_with(&leases.url, leases.store).await?;
/// # Ok(())
/// # }
/// # Ok::<(), serde_json::Error>(())
/// ```
impl<'de> serde::Deserialize<'de> for PostgresConfig {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;

        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Field {
            Text(String),
            Number(u64),
            Switch(bool),
        }

        let mut config = Self::default();
        for (name, value) in std::collections::BTreeMap::<String, Field>::deserialize(deserializer)? {
            let set = match value {
                Field::Text(text) => config.set(&name, &text, ""),
                Field::Number(number) => config.set(&name, &number.to_string(), ""),
                Field::Switch(switch) => config.set(&name, &switch.to_string(), ""),
            };
            set.map_err(D::Error::custom)?;
        }
        config.check().map_err(D::Error::custom)?;
        Ok(config)
    }
}

/// What the driver reads out of a URL; it passes over everything else in silence.
fn is_of_driver(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "sslmode",
        "ssl-mode",
        "sslrootcert",
        "ssl-root-cert",
        "ssl-ca",
        "sslcert",
        "ssl-cert",
        "sslkey",
        "ssl-key",
        "statement-cache-capacity",
        "host",
        "hostaddr",
        "port",
        "dbname",
        "user",
        "password",
        "application_name",
        "options",
    ];
    NAMES.contains(&name) || name.starts_with("options[")
}

fn truth(name: &str, value: &str) -> Result<bool, Error> {
    value.parse().map_err(|_| invalid(format!("{name} is true or false, and {value:?} is neither")))
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, Error> {
    value.parse().map_err(|_| invalid(format!("{name} is a whole number, and {value:?} is not")))
}

fn duration(name: &str, text: &str) -> Result<Duration, Error> {
    humantime::parse_duration(text)
        .map_err(|_| invalid(format!("{name} is written like 200ms, 5s or 2m, and {text:?} is not")))
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    fn refused(url: &str) -> String {
        let error = PostgresConfig::default().with_url(url).expect_err("an invalid URL");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        format!("{error:#} {error:?}")
    }

    #[test]
    fn a_url_says_what_is_ours_and_what_is_the_drivers() {
        let (config, options) = PostgresConfig::default().with_url(
            "postgres://app:secret@db:7000/orders?schema=a&table_prefix=b_&deadline=2s&migrate=false&application_name=x",
        )
        .unwrap();
        let expected = PostgresConfig::default()
            .with_schema("a")
            .with_table_prefix("b_")
            .with_deadline(Duration::from_secs(2))
            .with_migrate(false);
        assert_eq!(config, expected);
        assert_eq!((options.get_host(), options.get_port()), ("db", 7000));
        assert_eq!((options.get_database(), options.get_application_name()), (Some("orders"), Some("x")));
    }

    #[test]
    fn a_wrong_url_is_refused_and_the_alternatives_are_named() {
        assert!(refused("mysql://h").contains("neither postgres:// nor"));
        assert!(refused("postgres://h?ttl=3").contains("no parameter `ttl`; there are: deadline"));
        assert!(refused("postgres://h?deadline=3").contains("written like 200ms"));
        assert!(refused("postgres://h?deadline=0s").contains("above zero"));
        assert!(refused("postgres://h?max_batch=0").contains("1 to 1000"));
        assert!(refused("postgres://h?grace=1s").contains("grace"));
        assert!(refused("postgres://h?schema=").contains("a schema is"));
        assert!(refused("postgres://h?hints=yes").contains("true or false"));
        #[cfg(not(feature = "tls"))]
        assert!(refused("postgres://h?sslmode=verify-full").contains("feature `tls`"));
        for name in ["a\"b", "A", "1a", "a.b", "a;b", "ü"] {
            assert!(PostgresConfig::default().with_schema(name).sql().is_err(), "{name}");
            assert!(PostgresConfig::default().with_table_prefix(name).schema_sql().is_err(), "{name}");
        }
    }

    #[test]
    fn no_number_is_too_large_to_be_refused() {
        let (config, longest) = (PostgresConfig::default(), Duration::MAX);
        assert!(config.clone().with_deadline(longest).sql().is_err());
        assert!(config.clone().with_deadline(longest).with_grace(longest).sql().is_err());
        assert!(config.clone().with_max_connections(u32::MAX).sql().is_err());
        assert!(config.clone().with_max_value_len(usize::MAX).sql().is_err());
        assert!(config.with_sweep_interval(longest).sql().is_ok(), "never, about");
    }

    #[test]
    fn no_refusal_shows_a_password() {
        for url in [
            "x://u:hunter2@h",
            "postgres://u:hunter2@h?x=1",
            "postgres://u:hunter2@h:x",
            "postgres://u:hunter2@h?sslmode=x",
        ] {
            let shown = refused(url);
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn a_url_goes_before_what_is_there() {
        let config = PostgresConfig::default().with_max_connections(3).with_max_batch(1);
        let (merged, _) = config.clone().with_url("postgres://h?max_connections=2").unwrap();
        assert_eq!(merged, config.with_max_connections(2));
    }

    #[test]
    fn a_configuration_file_can_say_the_same() {
        let read = |json| serde_json::from_value::<PostgresConfig>(json);
        let config = serde_json::json!({
            "table_prefix": "a_", "deadline": "200ms", "grace": "2m", "max_connections": 2, "hints": false
        });
        let expected = PostgresConfig::default()
            .with_table_prefix("a_")
            .with_deadline(Duration::from_millis(200))
            .with_grace(Duration::from_secs(120))
            .with_max_connections(2)
            .with_hints(false);
        assert_eq!(read(config).unwrap(), expected);
        assert_eq!(read(serde_json::json!({})).unwrap(), PostgresConfig::default());
        for (wrong, said) in [
            (serde_json::json!({ "ttl": "3s" }), "no parameter `ttl`; there are: deadline"),
            (serde_json::json!({ "sslmode": "require" }), "no parameter `sslmode`"),
            (serde_json::json!({ "deadline": 3 }), "written like 200ms"),
            (serde_json::json!({ "schema": "A" }), "a schema is"),
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
