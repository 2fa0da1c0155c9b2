use std::fmt;
use std::str::FromStr;

use leasehold_core::Capabilities;

/// A guarantee that a store may do without. Checks that need one it lacks are ignored, unless it is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// Other processes can reach the same data.
    Shared,
    /// An answered write survives the end of the store's process.
    Durable,
    /// The store tells of changes.
    Hints,
    /// The store mints revisions that can serve as fencing tokens.
    Revisions,
}

impl Capability {
    /// Every capability.
    pub const ALL: [Self; 4] = [Self::Shared, Self::Durable, Self::Hints, Self::Revisions];

    /// The name, as in [`Capabilities`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Durable => "durable",
            Self::Hints => "hints",
            Self::Revisions => "revisions",
        }
    }

    /// Reads `all`, or names with commas between them.
    ///
    /// # Errors
    ///
    /// The name that is none, and those that there are.
    pub fn parse_list(list: &str) -> Result<Vec<Self>, UnknownCapability> {
        match list.trim() {
            "all" => Ok(Self::ALL.to_vec()),
            list => list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::parse).collect(),
        }
    }

    pub(crate) fn is_declared(self, capabilities: &Capabilities) -> bool {
        match self {
            Self::Shared => capabilities.shared,
            Self::Durable => capabilities.durable,
            Self::Hints => capabilities.hints,
            Self::Revisions => capabilities.revisions,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Capability {
    type Err = UnknownCapability;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| UnknownCapability(name.to_owned()))
    }
}

/// A name that is no capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownCapability(String);

impl fmt::Display for UnknownCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Capability::ALL.map(Capability::name).join(", ");
        write!(f, "there is no capability `{}`; there are: {names}, and `all` for all of them", self.0)
    }
}

impl std::error::Error for UnknownCapability {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_names_or_all_and_an_unknown_name_is_told_the_others() {
        assert_eq!(Capability::parse_list("hints, shared").unwrap(), [Capability::Hints, Capability::Shared]);
        assert_eq!(Capability::parse_list("all").unwrap(), Capability::ALL);
        assert_eq!(Capability::parse_list("").unwrap(), []);
        let error = Capability::parse_list("hint").unwrap_err().to_string();
        assert!(error.contains("`hint`") && error.contains("shared, durable, hints, revisions"), "{error}");
    }
}
