use leasehold_core::Capabilities;

/// What can be chosen about a [`MemoryStore`](crate::MemoryStore).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// The longest value, in bytes; 1 MiB unless set.
    pub max_value_len: usize,
}

impl MemoryConfig {
    /// Sets the longest value, in bytes.
    #[must_use]
    pub fn with_max_value_len(mut self, max_value_len: usize) -> Self {
        self.max_value_len = max_value_len;
        self
    }
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { max_value_len: Capabilities::DEFAULT_MAX_VALUE_LEN }
    }
}
