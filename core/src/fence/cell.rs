use std::sync::{Mutex, PoisonError};

use crate::fence::{Admission, FencePolicy, FencingToken};

/// A value of this process that refuses writes under an older lease.
///
/// ```
/// use leasehold_core::fence::{Admission, FencePolicy, FencedCell, FencingToken};
///
/// let balance = FencedCell::new(100);
/// let (old, new) = (FencingToken::new(33)?, FencingToken::new(34)?);
/// assert!(balance.write(new, FencePolicy::Repeatable, |balance| *balance -= 30).is_admitted());
/// let late = balance.write(old, FencePolicy::Repeatable, |balance| *balance -= 50);
/// assert_eq!(late, Admission::Stale { highest: new });
/// assert_eq!(balance.read(|balance| *balance), 70);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct FencedCell<T>(Mutex<Guarded<T>>);

#[derive(Debug, Default)]
struct Guarded<T> {
    highest: Option<FencingToken>,
    value: T,
}

impl<T> FencedCell<T> {
    /// A value that nobody has written under a lease yet.
    pub fn new(value: T) -> Self {
        Self(Mutex::new(Guarded { highest: None, value }))
    }

    /// Changes the value, unless a higher token was here before. Check and change are one step: `change` runs under
    /// the cell's lock, so it should be short.
    pub fn write<R>(&self, token: FencingToken, policy: FencePolicy, change: impl FnOnce(&mut T) -> R) -> Admission<R> {
        let mut guarded = self.guarded();
        match guarded.highest {
            Some(highest) if !policy.admits(token, Some(highest)) => Admission::Stale { highest },
            _ => {
                // Noted first: a change that panics halfway was a write of this holder all the same.
                guarded.highest = Some(token);
                Admission::Admitted(change(&mut guarded.value))
            }
        }
    }

    /// Looks at the value.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.guarded().value)
    }

    // A `change` that panicked has left the value as it was at that point; the fence itself is whole.
    fn guarded(&self) -> std::sync::MutexGuard<'_, Guarded<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
