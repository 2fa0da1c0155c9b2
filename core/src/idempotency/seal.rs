#[cfg(not(feature = "encryption"))]
pub(super) use off::Seal;
#[cfg(feature = "encryption")]
pub use on::PayloadKeys;
#[cfg(feature = "encryption")]
pub(super) use on::Seal;

/// Without the feature, answers are recorded as they are.
#[cfg(not(feature = "encryption"))]
mod off {
    use bytes::Bytes;

    use crate::error::{Code, Effect, Error, ErrorKind};
    use crate::idempotency::record::{Header, State};
    use crate::store::Key;

    pub(crate) struct Seal;

    impl Seal {
        /// It encrypts nothing.
        pub(crate) fn none() -> Self {
            Self
        }

        pub(crate) fn close(&self, _: &Key, _: &Header, answer: Bytes) -> Result<State, Error> {
            Ok(State::Answered(answer))
        }

        pub(crate) fn open(&self, _: &Key, _: &Header, _: Bytes) -> Result<Bytes, Error> {
            let message = "the recorded answer is encrypted, and this build has no `encryption`";
            Err(Error::new(ErrorKind::Corrupt, "replay", message)
                .with_code(Code::NotReplayable)
                .with_effect(Effect::None))
        }

        /// How many bytes it adds.
        pub(crate) fn overhead(&self) -> usize {
            0
        }
    }
}

#[cfg(feature = "encryption")]
mod on {
    use std::fmt;

    use bytes::{BufMut, Bytes, BytesMut};
    use chacha20poly1305::aead::{Aead, Payload};
    use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};

    use crate::error::{Code, Effect, Error, ErrorKind};
    use crate::idempotency::record::{Header, State};
    use crate::store::Key;

    /// The keys that recorded answers are encrypted with: XChaCha20-Poly1305, with a random nonce for each answer. What
    /// is encrypted is bound to its record, so that it cannot be moved to another.
    ///
    /// Each key has an id, which is stored with what it encrypted. To rotate, make the new key the first and keep the old
    /// one as long as records live.
    ///
    /// ```
    /// use leasehold_core::idempotency::PayloadKeys;
    ///
    /// # let (new, old) = ([1; 32], [2; 32]);
    /// let keys = PayloadKeys::new(2, new).with_former(1, old);
    /// assert_eq!(format!("{keys:?}"), "PayloadKeys { ids: [2, 1] }");
    /// ```
    #[derive(Clone)]
    pub struct PayloadKeys(Vec<(u32, XChaCha20Poly1305)>);

    impl PayloadKeys {
        /// Encrypts with this key of 32 random bytes, under an id that no other key has.
        pub fn new(id: u32, key: [u8; 32]) -> Self {
            Self(vec![(id, XChaCha20Poly1305::new(&key.into()))])
        }

        /// Reads what an earlier key has encrypted. Of two with one id the first counts.
        #[must_use]
        pub fn with_former(mut self, id: u32, key: [u8; 32]) -> Self {
            self.0.push((id, XChaCha20Poly1305::new(&key.into())));
            self
        }
    }

    impl fmt::Debug for PayloadKeys {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let ids: Vec<_> = self.0.iter().map(|(id, _)| id).collect();
            f.debug_struct("PayloadKeys").field("ids", &ids).finish()
        }
    }

    const NONCE: usize = 24;
    const TAG: usize = 16;

    /// Encrypts answers, if there are keys for it: the key's id, the nonce, and what is encrypted.
    pub(crate) struct Seal(Option<PayloadKeys>);

    impl Seal {
        /// It encrypts nothing.
        pub(crate) fn none() -> Self {
            Self(None)
        }

        pub(crate) fn with(keys: PayloadKeys) -> Self {
            Self(Some(keys))
        }

        pub(crate) fn close(&self, key: &Key, header: &Header, answer: Bytes) -> Result<State, Error> {
            let Some((id, cipher)) = self.0.as_ref().and_then(|keys| keys.0.first()) else {
                return Ok(State::Answered(answer));
            };
            let nonce = XNonce::from(rand::random::<[u8; NONCE]>());
            let sealed = cipher
                .encrypt(&nonce, Payload { msg: &answer, aad: &bound_to(key, header) })
                .map_err(|_| Error::new(ErrorKind::Other, "complete", "the answer cannot be encrypted"))?;
            let mut body = BytesMut::with_capacity(self.overhead() + answer.len());
            body.put_u32(*id);
            body.put_slice(&nonce);
            body.put_slice(&sealed);
            Ok(State::Sealed(body.freeze()))
        }

        pub(crate) fn open(&self, key: &Key, header: &Header, body: Bytes) -> Result<Bytes, Error> {
            let refused = |message: &'static str| {
                Error::new(ErrorKind::Corrupt, "replay", message)
                    .with_code(Code::NotReplayable)
                    .with_effect(Effect::None)
            };
            let keys =
                self.0.as_ref().ok_or_else(|| refused("the recorded answer is encrypted, and there are no keys"))?;
            let (id, rest) =
                body.split_first_chunk::<4>().ok_or_else(|| refused("the encrypted answer is cut short"))?;
            let (nonce, sealed) =
                rest.split_first_chunk::<NONCE>().ok_or_else(|| refused("the encrypted answer is cut short"))?;
            let id = u32::from_be_bytes(*id);
            let (_, cipher) = keys
                .0
                .iter()
                .find(|(known, _)| *known == id)
                .ok_or_else(|| refused("the recorded answer is encrypted under a key that is not known"))?;
            let opened = cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: &bound_to(key, header) });
            opened.map(Bytes::from).map_err(|_| refused("the encrypted answer was not written under this key"))
        }

        /// How many bytes it adds.
        pub(crate) fn overhead(&self) -> usize {
            if self.0.is_some() { size_of::<u32>() + NONCE + TAG } else { 0 }
        }
    }

    fn bound_to(key: &Key, header: &Header) -> Vec<u8> {
        [&*header.bound_to(), key.as_bytes()].concat()
    }

    #[cfg(test)]
    mod tests {
        use std::time::SystemTime;

        use super::*;
        use crate::idempotency::fingerprint::Fingerprint;
        use crate::lock::Nonce;

        fn header(operation: &'static str) -> Header {
            Header {
                nonce: Nonce::from_bytes([7; 16]),
                fingerprint: Fingerprint::of_parts([]),
                since: SystemTime::UNIX_EPOCH,
                operation: Bytes::from_static(operation.as_bytes()),
            }
        }

        fn sealed(seal: &Seal, key: &Key) -> Bytes {
            match seal.close(key, &header("charge"), "the answer".into()).unwrap() {
                State::Sealed(body) => body,
                _ => panic!("it was not encrypted"),
            }
        }

        #[test]
        fn only_the_keys_and_only_the_record_open_it() {
            let key = Key::new("idem:-:-:k").unwrap();
            let old = Seal::with(PayloadKeys::new(1, [1; 32]));
            let new = Seal::with(PayloadKeys::new(2, [2; 32]).with_former(1, [1; 32]));
            let body = sealed(&old, &key);
            assert_eq!(body.len(), "the answer".len() + old.overhead());
            assert!(!body.windows(6).any(|window| window == b"answer"));
            assert_ne!(body, sealed(&old, &key), "a nonce is used once");
            for seal in [&old, &new] {
                assert_eq!(seal.open(&key, &header("charge"), body.clone()).unwrap(), "the answer");
            }
            let refused = |seal: &Seal, key: &Key, operation, body: &Bytes| {
                let error = seal.open(key, &header(operation), body.clone()).unwrap_err();
                assert_eq!((error.kind(), error.code()), (ErrorKind::Corrupt, Some(Code::NotReplayable)));
            };
            refused(&old, &Key::new("idem:-:-:other").unwrap(), "charge", &body);
            refused(&old, &key, "refund", &body);
            refused(&old, &key, "charge", &sealed(&new, &key));
            refused(&Seal::with(PayloadKeys::new(1, [9; 32])), &key, "charge", &body);
            refused(&Seal::none(), &key, "charge", &body);
            for cut in [0, 3, 27, body.len() - 1] {
                refused(&old, &key, "charge", &body.slice(..cut));
            }
        }
    }
}
