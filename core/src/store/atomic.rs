use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Error;
use crate::store::{AddOutcome, Capabilities, Entry, Hints, Key, Outcome, ReplaceOutcome, Ttl};

/// The primitives that leases and idempotency stand on.
///
/// The rules below hold for every method, on every store; the conformance suite checks them.
///
/// - **One atomic step.** Each method reads, decides and writes in one step that no other operation can come between,
///   and in one round trip.
/// - **Expiry.** An expired entry is not there for any operation, whether or not a sweeper has passed: it is expired as
///   soon as `now >= deadline`. Only the store's own clock decides, read after any wait for a row or a file lock: an
///   operation that waited must not revive what died meanwhile.
/// - **Answers and errors.** "Taken", "not mine" and "absent" are answers. An error means that the store could not
///   answer; [`Error::effect`] then says whether a write may have been applied. It says `None` only where that is
///   proven, and a write may be sent again only then.
/// - **Cancel safety.** Dropping a future gives up the answer and not the request: the operation may have been applied,
///   may yet be, or may never be, as after an error of unknown effect. It is never applied in part, and no lock or
///   connection stays taken.
/// - **Expected values** are compared byte for byte with the whole value as it was written.
#[async_trait]
pub trait AtomicStore: Send + Sync {
    /// What kind of store this is, in one lower-case word, for errors, spans and metrics.
    fn name(&self) -> &'static str;

    /// What the store guarantees beyond the primitives.
    fn capabilities(&self) -> Capabilities;

    /// Writes the value if nothing live is there, else hands back what is, so that no second trip is needed.
    ///
    /// The entry ends `ttl` after the write, and no read moves that. The revision is larger than that of every earlier
    /// write of this key, also across removal and expiry. What `Exists` hands back was not read by that: a sliding entry
    /// does not live on for it.
    ///
    /// # Errors
    ///
    /// After an unknown effect the value may be there, or may appear later; a caller whose value is unique can tell by
    /// [`get`](Self::get), and can take it back with [`try_remove`](Self::try_remove).
    async fn try_add(&self, key: &Key, value: Bytes, ttl: Ttl) -> Result<AddOutcome, Error>;

    /// Writes the value if the live entry has the expected one; the entry then ends `ttl` after this write.
    ///
    /// `NotApplied` does not say whether nothing was there or another value: who needs to know asks
    /// [`get`](Self::get).
    ///
    /// # Errors
    ///
    /// After an unknown effect either value may be there.
    async fn try_replace(&self, key: &Key, expected: &[u8], value: Bytes, ttl: Ttl) -> Result<ReplaceOutcome, Error>;

    /// Removes the entry if it is live and has the expected value. What later revisions need stays.
    ///
    /// # Errors
    ///
    /// After an unknown effect it may still be there.
    async fn try_remove(&self, key: &Key, expected: &[u8]) -> Result<Outcome, Error>;

    /// Sets the time left to `ttl`, longer or shorter, if the entry is live and has the expected value. It never
    /// revives what has expired, changes no value and mints no revision. An entry that slid does so no more.
    ///
    /// # Errors
    ///
    /// After an unknown effect either end may hold.
    async fn try_expire(&self, key: &Key, expected: &[u8], ttl: Ttl) -> Result<Outcome, Error>;

    /// The live entry, if there is one. Reading an entry that was set with a sliding expiry makes it live on, and the time
    /// left that it says is the one after that.
    ///
    /// # Errors
    ///
    /// An error is never to be read as "nothing there". After an unknown effect a sliding entry may live on.
    async fn get(&self, key: &Key) -> Result<Option<Entry>, Error>;

    /// Listens for hints that the key may have changed. It resolves once the store has confirmed that it listens, so
    /// that a change after that is hinted at.
    ///
    /// A replacement, removal or set by anybody is hinted at; adding, prolonging and expiry need not be. Hints may be
    /// lost and may be spurious: no correctness rests on them. After a reconnect the stream says
    /// [`Hint::Anything`](crate::Hint::Anything); it ends when no hint can come any more. Dropping it stops listening.
    ///
    /// # Errors
    ///
    /// `Unsupported` on a store without [`Capabilities::hints`].
    async fn watch(&self, key: &Key) -> Result<Hints, Error>;
}
