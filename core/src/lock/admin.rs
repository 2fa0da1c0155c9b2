use crate::error::Error;
use crate::lock::locks::Locks;
use crate::lock::record::{Holder, Nonce};
use crate::store::{Entry, Key, Outcome};

/// For operators. None of this needs a lease.
impl Locks {
    /// Who holds the lease on `resource`, if anybody. It is of the past as soon as it is given.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a key that breaks a rule, `Corrupt` when something else is stored there, and what the store
    /// could not answer.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn inspect<K>(&self, resource: K) -> Result<Option<Holder>, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let key = self.key_of(&resource.try_into().map_err(Into::into)?)?;
        Ok(self.read(&key, "inspect").await?.map(|(_, holder)| holder))
    }

    /// Releases the lease of the acquisition with this nonce, from any process. `NotApplied` when it holds no more.
    ///
    /// The holder finds out at its next renewal, or at its deadline: until then it works on.
    ///
    /// # Errors
    ///
    /// As [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped it may be released.
    pub async fn release_by_token<K>(&self, resource: K, nonce: Nonce) -> Result<Outcome, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let key = self.key_of(&resource.try_into().map_err(Into::into)?)?;
        match self.read(&key, "release_by_token").await? {
            Some((entry, holder)) if holder.nonce == nonce => self.store().try_remove(&key, &entry.value).await,
            _ => Ok(Outcome::NotApplied),
        }
    }

    /// Releases the lease on `resource`, whoever holds it, and says who did. Nothing when nobody held it.
    ///
    /// The holder finds out at its next renewal, or at its deadline, and works on until then beside whoever comes next:
    /// only fencing tokens keep the two apart.
    ///
    /// # Errors
    ///
    /// As [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped it may be released.
    pub async fn force_release<K>(&self, resource: K) -> Result<Option<Holder>, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let key = self.key_of(&resource.try_into().map_err(Into::into)?)?;
        while let Some((entry, holder)) = self.read(&key, "force_release").await? {
            if self.store().try_remove(&key, &entry.value).await?.is_applied() {
                return Ok(Some(holder));
            }
            // Another took it between the two; that one is meant as well.
        }
        Ok(None)
    }

    async fn read(&self, key: &Key, operation: &'static str) -> Result<Option<(Entry, Holder)>, Error> {
        let Some(entry) = self.store().get(key).await? else { return Ok(None) };
        let holder = Holder::of(&entry, operation).map_err(|error| error.with_store(self.store().name()))?;
        Ok(Some((entry, holder)))
    }
}
