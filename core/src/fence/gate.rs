use std::fmt;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::{Effect, Error, ErrorKind};
use crate::fence::{Admission, FencePolicy, FencingToken};
use crate::store::{AddOutcome, AtomicStore, Entry, Key, ReplaceOutcome, Ttl};

/// Values in a store that refuse writes under an older lease. Token and value are one entry, so the check and the write
/// are one atomic step.
///
/// An entry lives for the gate's ttl after its last write, 366 days unless chosen, and is forgotten with its token
/// then: choose it longer than any writer can be late.
///
/// ```
/// # use leasehold_core::{fence::{FenceGate, FencePolicy, FencingToken}, Error, Store};
/// # async fn example(store: Store, token: FencingToken) -> Result<(), Error> {
/// let gate = FenceGate::new(store);
/// let written = gate.write("accounts:7", token, FencePolicy::Repeatable, "balance=70").await?;
/// assert!(written.is_admitted());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FenceGate {
    store: Arc<dyn AtomicStore>,
    ttl: Ttl,
}

impl FenceGate {
    /// Guards values on `store`.
    pub fn new(store: impl AtomicStore + 'static) -> Self {
        Self { store: Arc::new(store), ttl: Ttl::MAX }
    }

    /// How long a value and its token are kept after the last write.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = ttl;
        self
    }

    /// Writes the value, unless a higher token was here before. Two trips to the store, and two more for each write of
    /// another that comes between them.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a key that breaks a rule, `Corrupt` when something else is stored there, and what the store
    /// could not answer. After an unknown effect the value may be there. To write again with the same token is safe, and
    /// settles it: under [`Repeatable`](FencePolicy::Repeatable) by writing anew, and under
    /// [`Strict`](FencePolicy::Strict) either so, or by a [`Stale`](Admission::Stale) whose `highest` is the very token
    /// that was written with. Then the one write of this lease is there, and must not be taken for refused.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the value may be there.
    pub async fn write<K>(
        &self,
        resource: K,
        token: FencingToken,
        policy: FencePolicy,
        value: impl AsRef<[u8]>,
    ) -> Result<Admission, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let key = key_of(resource)?;
        let guarded = encode(token, value.as_ref());
        let mut found = self.store.get(&key).await?;
        loop {
            let Some(entry) = found else {
                match self.store.try_add(&key, guarded.clone(), self.ttl).await? {
                    AddOutcome::Added(_) => return Ok(Admission::Admitted(())),
                    AddOutcome::Exists(entry) => found = Some(entry),
                }
                continue;
            };
            let (highest, _) = self.decode(&entry)?;
            if !policy.admits(token, Some(highest)) {
                return Ok(Admission::Stale { highest });
            }
            match self.store.try_replace(&key, &entry.value, guarded.clone(), self.ttl).await? {
                ReplaceOutcome::Applied(_) => return Ok(Admission::Admitted(())),
                ReplaceOutcome::NotApplied => found = self.store.get(&key).await?,
            }
        }
    }

    /// The value and the token that it was written with, if there is one.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn read<K>(&self, resource: K) -> Result<Option<(FencingToken, Bytes)>, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        match self.store.get(&key_of(resource)?).await? {
            Some(entry) => self.decode(&entry).map(Some),
            None => Ok(None),
        }
    }

    fn decode(&self, entry: &Entry) -> Result<(FencingToken, Bytes), Error> {
        let corrupt = || {
            // A write looks before it writes, and again only where nothing was written.
            Error::new(ErrorKind::Corrupt, "fence", "what is stored there was not written through a gate")
                .with_effect(Effect::None)
                .with_store(self.store.name())
        };
        let (head, _) = entry.value.split_first_chunk::<HEAD>().ok_or_else(corrupt)?;
        let number = head.strip_prefix(LAYOUT).and_then(|number| number.try_into().ok()).map(u64::from_be_bytes);
        let token = number.and_then(|number| FencingToken::new(number).ok()).ok_or_else(corrupt)?;
        Ok((token, entry.value.slice(HEAD..)))
    }
}

/// What every guarded value begins with, before the token's 8 bytes.
const LAYOUT: &[u8] = b"fence1 ";
const HEAD: usize = LAYOUT.len() + 8;

fn encode(token: FencingToken, value: &[u8]) -> Bytes {
    let mut guarded = BytesMut::with_capacity(HEAD + value.len());
    guarded.put_slice(LAYOUT);
    guarded.put_u64(token.get());
    guarded.put_slice(value);
    guarded.freeze()
}

fn key_of<K>(resource: K) -> Result<Key, Error>
where
    K: TryInto<Key>,
    K::Error: Into<Error>,
{
    resource.try_into().map_err(Into::into)?.within("fence")
}

impl fmt::Debug for FenceGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, ttl } = self;
        f.debug_struct("FenceGate").field("store", &store.name()).field("ttl", ttl).finish()
    }
}
