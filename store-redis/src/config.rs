use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::{Capabilities, Error};
use redis::io::tcp::{TcpSettings, socket2};
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
use url::Url;

use crate::error::invalid;

/// Where a [`RedisStore`](crate::RedisStore) is, and how it behaves.
///
/// ```
/// use std::time::Duration;
/// use leasehold_redis::RedisConfig;
///
/// let config = RedisConfig::from_url("redis://app:secret@cache.example:6379/2")?
///     .with_deadline(Duration::from_millis(500));
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisConfig {
    /// Where the server listens.
    pub address: Address,
    /// Whether the link is encrypted; needs the feature `tls`.
    pub tls: bool,
    /// The ACL user; the server's default user unless set.
    pub username: Option<String>,
    /// The password. It is shown nowhere.
    pub password: Option<String>,
    /// The number of the database; 0 unless set. A Cluster has no other.
    pub database: u32,
    /// What the names of all keys in the server begin with; `leasehold:` unless set.
    pub key_prefix: String,
    /// How long a call may take in all, with any wait for a connection; 2 s unless set, and at most a day.
    pub deadline: Duration,
    /// How long one attempt to connect may take; 1 s unless set, and at most a day.
    pub connect_timeout: Duration,
    /// The longest value, in bytes; 1 MiB unless set.
    pub max_value_len: usize,
    /// Whether the server answers a write only once it is on disk, and evicts nothing: `appendonly yes`, `appendfsync
    /// always`, `maxmemory-policy noeviction`. The store cannot see it and takes it from here; it asks for nothing.
    pub durable: bool,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// A host by name or number, and a port.
    Tcp {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl RedisConfig {
    /// The parameters that a URL may have.
    pub const URL_PARAMETERS: &'static [&'static str] =
        &["connect_timeout", "database", "deadline", "durable", "key_prefix", "max_value_len", "password", "username"];

    const DEFAULT_PORT: u16 = 6379;
    const DEFAULT_KEY_PREFIX: &'static str = "leasehold:";

    /// A server at a host and a port, and everything else as it is unless set.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::at(Address::Tcp { host: host.into(), port })
    }

    /// A server behind a Unix socket, and everything else as it is unless set.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::at(Address::Unix(path.into()))
    }

    fn at(address: Address) -> Self {
        Self {
            address,
            tls: false,
            username: None,
            password: None,
            database: 0,
            key_prefix: Self::DEFAULT_KEY_PREFIX.to_owned(),
            deadline: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(1),
            max_value_len: Capabilities::DEFAULT_MAX_VALUE_LEN,
            durable: false,
        }
    }

    /// Reads a URL.
    ///
    /// | URL | server |
    /// |---|---|
    /// | `redis://[user][:password@]host[:port][/database]` | over TCP, port 6379 unless given |
    /// | `rediss://…` | the same, over TLS (feature `tls`) |
    /// | `redis+unix:///path/of/socket` | over a Unix socket |
    ///
    /// Each parameter of the same name sets a field: `?database=2&key_prefix=app:&deadline=500ms&connect_timeout=1s`
    /// `&max_value_len=1000&durable=true&username=…&password=…`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for what cannot be read; it shows no password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let url = Url::parse(url).map_err(|error| invalid("it is not a URL").with_source(error))?;
        let mut config = match url.scheme() {
            "redis" | "rediss" => Self::from_tcp_url(&url)?,
            "redis+unix" => {
                if url.has_host() || url.path().len() < 2 {
                    return Err(invalid("a Unix socket is written redis+unix:///path/of/socket"));
                }
                Self::unix(decoded(url.path(), "the path")?)
            }
            other => return Err(invalid(format!("{other}:// is none of redis://, rediss://, redis+unix://"))),
        };
        if url.fragment().is_some() {
            return Err(invalid("the URL of a Redis store has no fragment"));
        }
        for (name, value) in url.query_pairs() {
            config.set(&name, &value)?;
        }
        Ok(config)
    }

    fn from_tcp_url(url: &Url) -> Result<Self, Error> {
        let host = match url.host() {
            // Without the brackets of a URL.
            Some(url::Host::Ipv6(address)) => address.to_string(),
            Some(host) => host.to_string(),
            None => return Err(invalid("a host is missing: redis://host:port")),
        };
        if host.is_empty() {
            return Err(invalid("a host is missing: redis://host:port"));
        }
        let mut config = Self::tcp(host, url.port().unwrap_or(Self::DEFAULT_PORT));
        config.tls = url.scheme() == "rediss";
        if !url.username().is_empty() {
            config.username = Some(decoded(url.username(), "the user")?);
        }
        if let Some(password) = url.password() {
            config.password = Some(decoded(password, "the password")?);
        }
        match url.path().trim_matches('/') {
            "" => {}
            database => config.set("database", database)?,
        }
        Ok(config)
    }

    fn set(&mut self, parameter: &str, value: &str) -> Result<(), Error> {
        match parameter {
            "connect_timeout" => self.connect_timeout = duration(parameter, value)?,
            "database" => {
                self.database =
                    value.parse().map_err(|_| invalid(format!("the database is a number, and {value:?} is not")))?;
            }
            "deadline" => self.deadline = duration(parameter, value)?,
            "durable" => {
                self.durable = value
                    .parse()
                    .map_err(|_| invalid(format!("durable is true or false, and {value:?} is neither")))?;
            }
            "key_prefix" => value.clone_into(&mut self.key_prefix),
            "max_value_len" => {
                self.max_value_len =
                    value.parse().map_err(|_| invalid(format!("max_value_len is in bytes, and {value:?} is not")))?;
            }
            "password" => self.password = Some(value.to_owned()),
            "username" => self.username = Some(value.to_owned()),
            unknown => {
                let known = Self::URL_PARAMETERS.join(", ");
                return Err(invalid(format!("there is no parameter `{unknown}`; there are: {known}")));
            }
        }
        Ok(())
    }

    /// Sets the ACL user and the password.
    #[must_use]
    pub fn with_credentials(mut self, username: impl Into<String>, password: impl Into<String>) -> Self {
        self.username = Some(username.into());
        self.password = Some(password.into());
        self
    }

    /// Sets the password of the server's default user.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Sets whether the link is encrypted.
    #[must_use]
    pub fn with_tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    /// Sets the number of the database.
    #[must_use]
    pub fn with_database(mut self, database: u32) -> Self {
        self.database = database;
        self
    }

    /// Sets what the names of all keys in the server begin with: at most 64 bytes without braces, white space and
    /// control characters.
    #[must_use]
    pub fn with_key_prefix(mut self, key_prefix: impl Into<String>) -> Self {
        self.key_prefix = key_prefix.into();
        self
    }

    /// Sets how long a call may take in all.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets how long one attempt to connect may take.
    #[must_use]
    pub fn with_connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Sets the longest value, in bytes.
    #[must_use]
    pub fn with_max_value_len(mut self, max_value_len: usize) -> Self {
        self.max_value_len = max_value_len;
        self
    }

    /// Says that the server keeps what it has answered, as [`durable`](Self::durable) tells.
    #[must_use]
    pub fn with_durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// The driver's view of where the server is.
    pub(crate) fn client(&self) -> Result<Client, Error> {
        let address = match &self.address {
            Address::Tcp { host, port } if self.tls => {
                if !cfg!(feature = "tls") {
                    return Err(invalid(
                        "rediss:// needs the feature `tls` of leasehold-redis, which is not compiled in",
                    ));
                }
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
            }
            Address::Tcp { host, port } => ConnectionAddr::Tcp(host.clone(), *port),
            Address::Unix(_) if self.tls => return Err(invalid("a Unix socket has no TLS")),
            Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
        };
        let mut login = RedisConnectionInfo::default().set_db(i64::from(self.database));
        if let Some(username) = &self.username {
            login = login.set_username(username);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        let info = address.into_connection_info().map(|info| info.set_redis_settings(login));
        self.settings().client(info.map_err(|_| invalid("the driver refused the address"))?)
    }

    /// What a store keeps of this once it is connected.
    pub(crate) fn settings(&self) -> Settings {
        let Self { deadline, connect_timeout, ref key_prefix, max_value_len, durable, .. } = *self;
        Settings { deadline, connect_timeout, key_prefix: key_prefix.clone(), max_value_len, durable }
    }
}

/// How a store behaves, wherever it is.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) deadline: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) key_prefix: String,
    pub(crate) max_value_len: usize,
    pub(crate) durable: bool,
}

impl Settings {
    /// So long that nobody waits longer, and that moments and multiples of it can be computed.
    const LONGEST: Duration = Duration::from_secs(24 * 3600);

    pub(crate) fn check(&self) -> Result<(), Error> {
        let Self { deadline, connect_timeout, key_prefix, max_value_len: _, durable: _ } = self;
        let is_unfit = |limit: &Duration| limit.is_zero() || *limit > Self::LONGEST;
        if is_unfit(deadline) || is_unfit(connect_timeout) {
            return Err(invalid("the deadline and the connect timeout must be above zero, and at most a day"));
        }
        let unfit = |character: char| "{}".contains(character) || character.is_whitespace() || character.is_control();
        // Braces decide about a key's place in a Cluster, and that is the layout's to do.
        if key_prefix.len() > 64 || key_prefix.contains(unfit) {
            return Err(invalid(format!(
                "a key prefix has at most 64 bytes without braces, white space and control characters, and \
                 {key_prefix:?} breaks it"
            )));
        }
        Ok(())
    }

    /// A client that connects as this store needs it.
    pub(crate) fn client(&self, info: ConnectionInfo) -> Result<Client, Error> {
        let login = info.redis_settings().clone();
        let login = login.set_protocol(ProtocolVersion::RESP3).set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
        // A dead peer is found out about within about half a minute though nobody asks anything. What was sent and not
        // acknowledged for two deadlines ends the connection, so that it cannot be delivered much later.
        let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(15));
        #[cfg(any(target_os = "linux", target_os = "macos", target_os = "freebsd"))]
        let keepalive = keepalive.with_interval(Duration::from_secs(5)).with_retries(3);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(self.deadline * 2);
        let info = info.set_redis_settings(login).set_tcp_settings(tcp);
        Client::open(info).map_err(|_| invalid("the driver refused the address"))
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            tls,
            username,
            password,
            database,
            key_prefix,
            deadline,
            connect_timeout,
            max_value_len,
            durable,
        } = self;
        f.debug_struct("RedisConfig")
            .field("address", address)
            .field("tls", tls)
            .field("username", username)
            .field("password", &password.as_ref().map(|_| "…"))
            .field("database", database)
            .field("key_prefix", key_prefix)
            .field("deadline", deadline)
            .field("connect_timeout", connect_timeout)
            .field("max_value_len", max_value_len)
            .field("durable", durable)
            .finish()
    }
}

/// A table of a configuration file: the URL, and any of its parameters as fields of their own.
///
/// ```toml
/// url = "redis://cache.example"
/// password = "…"
/// deadline = "500ms"
/// ```
impl<'de> serde::Deserialize<'de> for RedisConfig {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;

        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Field {
            Text(String),
            Number(u64),
            Switch(bool),
        }

        let fields = std::collections::BTreeMap::<String, Field>::deserialize(deserializer)?;
        let Some(Field::Text(url)) = fields.get("url") else { return Err(D::Error::missing_field("url")) };
        let mut config = Self::from_url(url).map_err(D::Error::custom)?;
        for (name, value) in fields.iter().filter(|(name, _)| *name != "url") {
            let set = match value {
                Field::Text(text) => config.set(name, text),
                Field::Number(number) => config.set(name, &number.to_string()),
                Field::Switch(switch) => config.set(name, &switch.to_string()),
            };
            set.map_err(D::Error::custom)?;
        }
        Ok(config)
    }
}

fn decoded(text: &str, what: &str) -> Result<String, Error> {
    // A query is percent-encoded too, but for `+` and `&`, which a user's name may well have.
    let query = format!("x={}", text.replace('+', "%2B").replace('&', "%26"));
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    match pairs.next() {
        Some((_, value)) if !value.contains(char::REPLACEMENT_CHARACTER) => Ok(value.into_owned()),
        _ => Err(invalid(format!("{what} is not UTF-8"))),
    }
}

fn duration(parameter: &str, text: &str) -> Result<Duration, Error> {
    humantime::parse_duration(text)
        .map_err(|_| invalid(format!("{parameter} is written like 200ms, 5s or 2m, and {text:?} is not")))
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    fn refused(url: &str) -> String {
        let error = RedisConfig::from_url(url)
            .and_then(|config| {
                config.settings().check()?;
                config.client()
            })
            .expect_err("an invalid URL");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        format!("{error:#} {error:?}")
    }

    #[test]
    fn a_url_says_everything() {
        let config =
            RedisConfig::from_url("redis://a%40&b:p%3Ass%2B+&=%26@[::1]:7000/3?deadline=500ms&key_prefix=app:")
                .unwrap();
        let expected = RedisConfig::tcp("::1", 7000)
            .with_credentials("a@&b", "p:ss++&=&")
            .with_database(3)
            .with_deadline(Duration::from_millis(500))
            .with_key_prefix("app:");
        assert_eq!(config, expected);
        let config = RedisConfig::from_url("redis://:secret@localhost").unwrap();
        assert_eq!(config, RedisConfig::tcp("localhost", 6379).with_password("secret"));
        let config = RedisConfig::from_url("redis+unix:///run/red%20is&co.sock?database=2").unwrap();
        assert_eq!(config, RedisConfig::unix("/run/red is&co.sock").with_database(2));
    }

    #[test]
    fn a_wrong_url_is_refused_and_the_alternatives_are_named() {
        assert!(refused("localhost:6379/x y").contains("none of redis://"));
        assert!(refused("redis://").contains("host is missing"));
        assert!(refused("redis://h/x").contains("the database is a number"));
        assert!(
            refused("redis://h?ttl=3").contains("no parameter `ttl`; there are: connect_timeout, database, deadline")
        );
        assert!(refused("redis://h?deadline=3").contains("written like 200ms"));
        assert!(refused("redis://h?deadline=0s").contains("above zero"));
        assert!(refused("redis://h?deadline=25h").contains("at most a day"));
        assert!(refused("redis://h?connect_timeout=25h").contains("at most a day"));
        assert!(refused("redis://h?deadline=99999999999999999999h").contains("written like"));
        assert!(refused("redis://h?key_prefix=%7Ba%7D").contains("without braces"));
        assert!(refused("redis://h#insecure").contains("no fragment"));
        assert!(refused("redis+unix://host/path").contains("redis+unix:///path"));
        #[cfg(not(feature = "tls"))]
        assert!(refused("rediss://h").contains("feature `tls`"));
    }

    #[test]
    fn no_rendering_shows_a_password() {
        for url in ["redis://u:hunter2@h:x", "redis://u:hunter2@h?x=1", "redis://u:hunter2@h/x", "x://u:hunter2@h"] {
            let shown = refused(url);
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        let config = RedisConfig::from_url("redis://u:hunter2@h").unwrap();
        assert!(!format!("{config:?} {:?}", config.client().unwrap()).contains("hunter2"));
    }

    #[test]
    fn a_configuration_file_can_say_the_same() {
        let config = serde_json::json!({ "url": "redis://h", "password": "secret", "deadline": "5s", "database": 2 });
        let config: RedisConfig = serde_json::from_value(config).unwrap();
        let expected = RedisConfig::tcp("h", 6379).with_password("secret").with_database(2);
        assert_eq!(config, expected.with_deadline(Duration::from_secs(5)));
        let unknown = serde_json::json!({ "url": "redis://h", "ttl": 3 });
        let error = serde_json::from_value::<RedisConfig>(unknown).unwrap_err();
        assert!(error.to_string().contains("no parameter `ttl`"), "{error}");
    }
}
