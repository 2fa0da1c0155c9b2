use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;

use leasehold_core::{AtomicStore, CacheStore};

use crate::handle::Handle;

type BoxError = Box<dyn StdError + Send + Sync>;

/// What the closure of [`Suite::new`](crate::Suite::new) may answer with: a store, or a `Result` of one.
///
/// The parameter tells the two apart ([`ByValue`], [`ByResult`]) and is always inferred.
pub trait IntoCacheStore<By> {
    /// The store, or why there is none.
    ///
    /// # Errors
    ///
    /// What the closure answered with.
    fn into_cache_store(self) -> Result<Arc<dyn CacheStore>, BoxError>;
}

/// The same for [`Suite::atomic`](crate::Suite::atomic).
pub trait IntoAtomicStore<By> {
    /// The store, or why there is none.
    ///
    /// # Errors
    ///
    /// What the closure answered with.
    fn into_atomic_store(self) -> Result<Arc<dyn AtomicStore>, BoxError>;
}

/// The closure answers with a store.
#[derive(Debug)]
pub enum ByValue {}

/// The closure answers with a `Result`.
#[derive(Debug)]
pub enum ByResult {}

impl<S: CacheStore + 'static> IntoCacheStore<ByValue> for S {
    fn into_cache_store(self) -> Result<Arc<dyn CacheStore>, BoxError> {
        Ok(Arc::new(self))
    }
}

impl<S: CacheStore + 'static, E: Into<BoxError>> IntoCacheStore<ByResult> for Result<S, E> {
    fn into_cache_store(self) -> Result<Arc<dyn CacheStore>, BoxError> {
        self.map(|store| Arc::new(store) as _).map_err(Into::into)
    }
}

impl<S: AtomicStore + 'static> IntoAtomicStore<ByValue> for S {
    fn into_atomic_store(self) -> Result<Arc<dyn AtomicStore>, BoxError> {
        Ok(Arc::new(self))
    }
}

impl<S: AtomicStore + 'static, E: Into<BoxError>> IntoAtomicStore<ByResult> for Result<S, E> {
    fn into_atomic_store(self) -> Result<Arc<dyn AtomicStore>, BoxError> {
        self.map(|store| Arc::new(store) as _).map_err(Into::into)
    }
}

/// Opens handles on the store under test.
#[derive(Clone)]
pub(crate) struct Opener(Arc<dyn Fn(String) -> Opening + Send + Sync>);

// It is polled on the thread of its check only, so it need not be `Send`.
type Opening = Pin<Box<dyn Future<Output = Result<Handle, BoxError>>>>;

impl Opener {
    pub(crate) fn of_cache<F, Fut, By>(open: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoCacheStore<By>> + 'static,
    {
        Self(Arc::new(move |namespace| {
            let opening = open(namespace);
            Box::pin(async move { opening.await.into_cache_store().map(Handle::of_cache) })
        }))
    }

    pub(crate) fn of_atomic<F, Fut, By>(open: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoAtomicStore<By>> + 'static,
    {
        Self(Arc::new(move |namespace| {
            let opening = open(namespace);
            Box::pin(async move { opening.await.into_atomic_store().map(Handle::of_atomic) })
        }))
    }

    pub(crate) async fn open(&self, namespace: &str) -> Result<Handle, BoxError> {
        (self.0)(namespace.to_owned()).await
    }
}
