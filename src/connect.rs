use leasehold_core::wrap::Prefixed;
use leasehold_core::{CacheStore, Error, ErrorKind, Namespace, Store};
use url::Url;

/// Opens the store that a URL names.
///
/// | URL | store |
/// |---|---|
/// | `memory://` | in this process's memory, private to this call |
/// | `memory://name` | the same, shared by all who connect to this name |
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
pub async fn connect(url: &str) -> Result<Store, Error> {
    let parsed = Url::parse(url).map_err(|error| invalid("it is not a URL").with_source(error))?;
    let mut parameters = Parameters::of(&parsed);
    let namespace = parameters.take("namespace").map(Namespace::new).transpose()?;
    let opened = match parsed.scheme() {
        #[cfg(feature = "memory")]
        "memory" => open_memory(&parsed, parameters)?,
        unknown => return Err(unknown_scheme(unknown)),
    };
    Ok(match namespace {
        Some(namespace) => Store::new(Prefixed::new(opened, namespace)),
        None => opened,
    })
}

#[cfg(feature = "memory")]
fn open_memory(url: &Url, parameters: Parameters) -> Result<Store, Error> {
    use leasehold_memory::MemoryStore;

    parameters.all_known(&[])?;
    if !matches!(url.path(), "" | "/") || url.port().is_some() || !url.username().is_empty() {
        return Err(invalid("a memory store has a name and nothing else: memory://name"));
    }
    Ok(stored(match url.host_str() {
        Some(name) => MemoryStore::named(name),
        None => MemoryStore::new(),
    }))
}

fn stored(store: impl CacheStore + 'static) -> Store {
    Store::new(store)
}

/// Each scheme, and the feature that brings it.
const SCHEMES: &[(&str, &str, bool)] = &[("memory", "memory", cfg!(feature = "memory"))];

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

/// The parameters of a URL that nobody has taken yet.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn of(url: &Url) -> Self {
        Self(url.query_pairs().into_owned().collect())
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let place = self.0.iter().position(|(parameter, _)| parameter == name)?;
        Some(self.0.remove(place).1)
    }

    fn all_known(self, known: &[&str]) -> Result<(), Error> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                let known = ["namespace"].iter().chain(known).copied().collect::<Vec<_>>().join(", ");
                Err(invalid(format!("there is no parameter `{name}`; there are: {known}")))
            }
        }
    }
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
}
