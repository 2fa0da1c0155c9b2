//! The URL of a store, which may hold a password.

use std::convert::Infallible;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use leasehold::{Error, Store};
use url::Url;

/// The URL of a store as it was given. Showing it hides what may be a secret; only the connection sees the whole.
#[derive(Clone)]
pub(crate) struct StoreUrl(String);

impl StoreUrl {
    /// A store behind a Unix socket.
    pub(crate) fn of_socket(scheme: &str, path: &Path) -> Self {
        // The path of a file URL is encoded as that of any other.
        let encoded = Url::from_file_path(path).map(|url| url.path().to_owned());
        Self(format!("{scheme}://{}", encoded.unwrap_or_default()))
    }

    /// Opens the store.
    pub(crate) async fn connect(&self) -> Result<Store, Error> {
        leasehold::connect(&self.0).await
    }

    /// The whole, for what opens the store elsewhere. It is not to be shown.
    pub(crate) fn with_secrets(&self) -> &str {
        &self.0
    }
}

impl FromStr for StoreUrl {
    type Err = Infallible;

    // What is wrong with it is found when it is opened, by who knows the schemes: an error of the argument parser would
    // show the whole of it.
    fn from_str(url: &str) -> Result<Self, Infallible> {
        Ok(Self(url.to_owned()))
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HIDDEN: &str = "***";
        // Some drivers take a password as a parameter, and each names it differently.
        const OPEN_PARAMETERS: &[&str] = &["namespace", "migrate"];

        let Ok(mut url) = Url::parse(&self.0) else { return f.write_str("(not a URL)") };
        if url.cannot_be_a_base() && url.path().contains('@') {
            // Two slashes short of what was meant.
            return write!(f, "{}:{HIDDEN}", url.scheme());
        }
        let hides = !url.username().is_empty() || url.password().is_some();
        // They fail for a URL that can have neither, and such a one has none to hide.
        let _ = url.set_password(None);
        let _ = url.set_username(if hides { HIDDEN } else { "" });
        url.set_fragment(None);
        let parameters: Vec<_> = url.query_pairs().into_owned().collect();
        url.set_query(None);
        if !parameters.is_empty() {
            let mut query = url.query_pairs_mut();
            for (name, value) in &parameters {
                query.append_pair(name, if OPEN_PARAMETERS.contains(&name.as_str()) { value } else { HIDDEN });
            }
        }
        f.write_str(url.as_str())
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        StoreUrl::from_str(url).unwrap().to_string()
    }

    #[test]
    fn no_secret_is_shown() {
        assert_eq!(shown("redis://admin:hunter2@db:6379/0"), "redis://***@db:6379/0");
        assert_eq!(shown("redis://:hunter2@db/0"), "redis://***@db/0");
        assert_eq!(shown("postgres://db/x?user=a&password=hunter2&namespace=n"), {
            "postgres://db/x?user=***&password=***&namespace=n"
        });
        assert_eq!(shown("redis:admin:hunter2@db"), "redis:***");
        assert_eq!(shown("redis//hunter2"), "(not a URL)");
    }

    #[test]
    fn what_holds_no_secret_is_shown_as_it_is() {
        for url in ["memory://", "memory://name", "redis://db:6379/0", "memory://?namespace=contest"] {
            assert_eq!(shown(url), url);
        }
    }
}
