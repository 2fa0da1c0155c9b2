use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::Error;
use crate::store::{
    AddOutcome, AtomicStore, CacheStore, Capabilities, Cursor, Entry, Expiry, Hints, Key, KeyPrefix, Outcome, Page,
    ReplaceOutcome, Revision, Ttl,
};

/// A store of any kind behind one cloneable handle: what `connect` gives.
#[derive(Clone)]
pub struct Store(Arc<dyn CacheStore>);

impl Store {
    /// Takes any store that has the whole contract.
    pub fn new(store: impl CacheStore + 'static) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.0.name()).finish()
    }
}

// A handle hands on the boxed future of what it points to. An `async fn` would box it again, an allocation a call for
// each handle on the way, so the methods are written with the signatures that `async_trait` gives those of the traits.
type Answer<'t, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 't>>;

macro_rules! forward_atomic_store {
    ([$($generics:tt)*] $handle:ty, |$handle_ref:ident| $store:expr) => {
        #[deny(clippy::missing_trait_methods)]
        impl<$($generics)*> AtomicStore for $handle {
            fn name(&self) -> &'static str {
                let $handle_ref = self;
                $store.name()
            }

            fn capabilities(&self) -> Capabilities {
                let $handle_ref = self;
                $store.capabilities()
            }

            fn try_add<'s, 'k, 't>(&'s self, key: &'k Key, value: Bytes, ttl: Ttl) -> Answer<'t, AddOutcome>
            where 's: 't, 'k: 't, Self: 't {
                let $handle_ref = self;
                $store.try_add(key, value, ttl)
            }

            fn try_replace<'s, 'k, 'e, 't>(
                &'s self, key: &'k Key, expected: &'e [u8], value: Bytes, ttl: Ttl,
            ) -> Answer<'t, ReplaceOutcome>
            where 's: 't, 'k: 't, 'e: 't, Self: 't {
                let $handle_ref = self;
                $store.try_replace(key, expected, value, ttl)
            }

            fn try_remove<'s, 'k, 'e, 't>(&'s self, key: &'k Key, expected: &'e [u8]) -> Answer<'t, Outcome>
            where 's: 't, 'k: 't, 'e: 't, Self: 't {
                let $handle_ref = self;
                $store.try_remove(key, expected)
            }

            fn try_expire<'s, 'k, 'e, 't>(&'s self, key: &'k Key, expected: &'e [u8], ttl: Ttl) -> Answer<'t, Outcome>
            where 's: 't, 'k: 't, 'e: 't, Self: 't {
                let $handle_ref = self;
                $store.try_expire(key, expected, ttl)
            }

            fn get<'s, 'k, 't>(&'s self, key: &'k Key) -> Answer<'t, Option<Entry>>
            where 's: 't, 'k: 't, Self: 't {
                let $handle_ref = self;
                $store.get(key)
            }

            fn watch<'s, 'k, 't>(&'s self, key: &'k Key) -> Answer<'t, Hints>
            where 's: 't, 'k: 't, Self: 't {
                let $handle_ref = self;
                $store.watch(key)
            }
        }
    };
}

macro_rules! forward_cache_store {
    ([$($generics:tt)*] $handle:ty, |$handle_ref:ident| $store:expr) => {
        #[deny(clippy::missing_trait_methods)]
        impl<$($generics)*> CacheStore for $handle {
            fn set<'s, 'k, 't>(&'s self, key: &'k Key, value: Bytes, expiry: Expiry) -> Answer<'t, Revision>
            where 's: 't, 'k: 't, Self: 't {
                let $handle_ref = self;
                $store.set(key, value, expiry)
            }

            fn remove<'s, 'k, 't>(&'s self, key: &'k Key) -> Answer<'t, Outcome>
            where 's: 't, 'k: 't, Self: 't {
                let $handle_ref = self;
                $store.remove(key)
            }

            fn get_many<'s, 'k, 't>(&'s self, keys: &'k [Key]) -> Answer<'t, Vec<Option<Entry>>>
            where 's: 't, 'k: 't, Self: 't {
                let $handle_ref = self;
                $store.get_many(keys)
            }

            fn set_many<'s, 't>(&'s self, items: Vec<(Key, Bytes, Expiry)>) -> Answer<'t, Vec<Revision>>
            where 's: 't, Self: 't {
                let $handle_ref = self;
                $store.set_many(items)
            }

            fn remove_many<'s, 'k, 't>(&'s self, keys: &'k [Key]) -> Answer<'t, Vec<Outcome>>
            where 's: 't, 'k: 't, Self: 't {
                let $handle_ref = self;
                $store.remove_many(keys)
            }

            fn scan<'s, 'p, 't>(&'s self, prefix: &'p KeyPrefix, cursor: Option<Cursor>) -> Answer<'t, Page>
            where 's: 't, 'p: 't, Self: 't {
                let $handle_ref = self;
                $store.scan(prefix, cursor)
            }

            fn watch_prefix<'s, 'p, 't>(&'s self, prefix: &'p KeyPrefix) -> Answer<'t, Hints>
            where 's: 't, 'p: 't, Self: 't {
                let $handle_ref = self;
                $store.watch_prefix(prefix)
            }
        }
    };
}

forward_atomic_store!([S: AtomicStore + ?Sized] &S, |handle| (**handle));
forward_atomic_store!([S: AtomicStore + ?Sized] Box<S>, |handle| (**handle));
forward_atomic_store!([S: AtomicStore + ?Sized] Arc<S>, |handle| (**handle));
forward_atomic_store!([] Store, |handle| handle.0);

forward_cache_store!([S: CacheStore + ?Sized] &S, |handle| (**handle));
forward_cache_store!([S: CacheStore + ?Sized] Box<S>, |handle| (**handle));
forward_cache_store!([S: CacheStore + ?Sized] Arc<S>, |handle| (**handle));
forward_cache_store!([] Store, |handle| handle.0);
