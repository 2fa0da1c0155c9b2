use leasehold_core::wrap::Prefixed;
use leasehold_core::{Error, ErrorKind, Namespace, Store};
use url::Url;

/// Opens the store that a URL names.
///
/// | URL | store |
/// |---|---|
/// | `memory://` | in this process's memory, private to this call |
/// | `memory://name` | the same, shared by all who connect to this name |
/// | `postgres://[user][:password@]host[:port]/database` | a table in Postgres (feature `postgres`) |
/// | `redis://[user][:password@]host[:port][/database]` | Redis or Valkey (feature `redis`) |
/// | `rediss://…` | the same, over TLS (feature `redis-tls`) |
/// | `redis+unix:///path/of/socket` | the same, over a Unix socket |
///
/// The other parameters of a Postgres URL are those of `leasehold::postgres::PostgresConfig::URL_PARAMETERS` and the
/// driver's, such as `sslmode` (feature `postgres-tls`); it makes its tables unless it says `migrate=false`.
/// The other parameters of a Redis URL are those of `leasehold::redis::RedisConfig::from_url`.
///
/// `?namespace=NAME` puts everything below a namespace, so that several users of one store do not meet.
///
/// # Errors
///
/// `InvalidInput` for what is no URL, for a scheme that is unknown or not compiled in (it lists those that are), and
/// for a parameter that the store does not have; else what the store could not answer. No error shows a password.
///
/// # Cancel safety
///
/// Dropping the future opens nothing.
#[cfg_attr(
    not(any(feature = "memory", feature = "postgres", feature = "redis")),
    allow(unused_variables, unused_imports, unreachable_code, reason = "without a store every URL is refused")
)]
pub async fn connect(url: &str) -> Result<Store, Error> {
    let mut parsed = Url::parse(url).map_err(|error| invalid("it is not a URL").with_source(error))?;
    let namespace = take_parameter(&mut parsed, "namespace").map(Namespace::new).transpose()?;
    let opened = match parsed.scheme() {
        #[cfg(feature = "memory")]
        "memory" => open_memory(&parsed)?,
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Store::new(leasehold_postgres::PostgresStore::connect(parsed.as_str()).await?),
        #[cfg(feature = "redis")]
        "redis" | "redis+unix" => open_redis(&parsed).await?,
        #[cfg(feature = "redis-tls")]
        "rediss" => open_redis(&parsed).await?,
        unknown => return Err(unknown_scheme(unknown)),
    };
    Ok(match namespace {
        Some(namespace) => Store::new(Prefixed::new(opened, namespace)),
        None => opened,
    })
}

#[cfg(feature = "memory")]
fn open_memory(url: &Url) -> Result<Store, Error> {
    use leasehold_memory::MemoryStore;

    if let Some((name, _)) = url.query_pairs().next() {
        return Err(invalid(format!("there is no parameter `{name}`; there are: namespace")));
    }
    if !matches!(url.path(), "" | "/") || url.port().is_some() || !url.username().is_empty() {
        return Err(invalid("a memory store has a name and nothing else: memory://name"));
    }
    Ok(Store::new(match url.host_str() {
        Some(name) => MemoryStore::named(name),
        None => MemoryStore::new(),
    }))
}

#[cfg(feature = "redis")]
async fn open_redis(url: &Url) -> Result<Store, Error> {
    use leasehold_redis::{RedisConfig, RedisStore};

    Ok(Store::new(RedisStore::connect(RedisConfig::from_url(url.as_str())?).await?))
}

/// Each scheme, the feature that brings it, and whether it is here.
const SCHEMES: &[(&str, &str, bool)] = &[
    ("memory", "memory", cfg!(feature = "memory")),
    ("postgres", "postgres", cfg!(feature = "postgres")),
    ("postgresql", "postgres", cfg!(feature = "postgres")),
    ("redis", "redis", cfg!(feature = "redis")),
    ("rediss", "redis-tls", cfg!(feature = "redis-tls")),
    ("redis+unix", "redis", cfg!(feature = "redis")),
];

fn unknown_scheme(scheme: &str) -> Error {
    let compiled_in: Vec<_> =
        SCHEMES.iter().filter(|(_, _, here)| *here).map(|(scheme, _, _)| format!("{scheme}://")).collect();
    let compiled_in = if compiled_in.is_empty() { "none".to_owned() } else { compiled_in.join(", ") };
    match SCHEMES.iter().find(|(known, _, here)| *known == scheme && !here) {
        Some((_, feature, _)) => invalid(format!(
            "{scheme}:// needs the feature `{feature}`, which is not compiled in; compiled in: {compiled_in}"
        )),
        None => invalid(format!("there is no store for {scheme}://; compiled in: {compiled_in}")),
    }
}

/// Takes a parameter out of a URL, so that a store sees only its own.
fn take_parameter(url: &mut Url, name: &str) -> Option<String> {
    let (taken, others): (Vec<_>, Vec<_>) =
        url.query_pairs().into_owned().partition(|(parameter, _)| parameter == name);
    url.set_query(None);
    if !others.is_empty() {
        url.query_pairs_mut().extend_pairs(others);
    }
    // Of two, the last wins, as in most that read URLs.
    taken.into_iter().next_back().map(|(_, value)| value)
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidInput, "connect", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refused(url: &str) -> String {
        let error = connect(url).await.expect_err("an invalid URL");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    }

    #[tokio::test]
    async fn a_wrong_url_is_refused_and_the_alternatives_are_named() {
        assert!(refused("").await.contains("not a URL"));
        assert!(refused("memory").await.contains("not a URL"));
        let unknown = refused("etcd://localhost").await;
        assert!(unknown.contains("no store for etcd://"), "{unknown}");
        #[cfg(feature = "memory")]
        {
            assert!(unknown.contains("memory://"), "{unknown}");
            assert!(refused("memory://a/b").await.contains("memory://name"));
            assert!(refused("memory://?ttl=3").await.contains("no parameter `ttl`; there are: namespace"));
            assert!(refused("memory://?namespace=a%20b").await.contains("white space"));
        }
    }

    #[tokio::test]
    #[cfg(not(feature = "redis"))]
    async fn a_store_that_is_not_compiled_in_names_its_feature() {
        assert!(refused("redis://localhost").await.contains("needs the feature `redis`"));
        assert!(refused("rediss://localhost").await.contains("needs the feature `redis-tls`"));
    }

    #[tokio::test]
    #[cfg(feature = "postgres")]
    async fn no_error_of_postgres_shows_a_password() {
        for url in ["postgres://app:hunter2@localhost/x?y=1", "postgresql://app:hunter2@127.0.0.1:1/x?deadline=50ms"] {
            let error = connect(url).await.expect_err("nobody listens there");
            assert!(!format!("{error} {error:#} {error:?}").contains("hunter2"), "{error:?}");
        }
    }

    #[tokio::test]
    #[cfg(feature = "redis")]
    async fn no_error_shows_a_password() {
        for url in ["redis://app:hunter2@localhost:1/0", "redis://:hunter2@localhost/x", "redis://app:hunter2@"] {
            let error = connect(url).await.expect_err("nobody listens there");
            assert!(!format!("{error} {error:#} {error:?}").contains("hunter2"), "{error:?}");
        }
    }
}
