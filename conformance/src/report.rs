use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a run of a [`Suite`](crate::Suite) came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// The suite's name: that of the store.
    pub suite: String,
    /// What the seeded checks were drawn from.
    pub seed: u64,
    /// Each check that was run, in the order of the table.
    pub checks: Vec<CheckReport>,
}

/// What one check came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// The property that it holds the store to, after its group: `try_add::exactly_one_of_many_wins`.
    pub name: String,
    /// The group.
    pub group: String,
    /// Whether the store has the property.
    pub status: Status,
    /// Why it failed or was ignored.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// How long it took; in JSON, in whole milliseconds.
    #[serde(rename = "duration_ms", with = "whole_milliseconds")]
    pub duration: Duration,
}

/// Whether a store has a property. This enum is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It has.
    Passed,
    /// It has not, or could not be asked.
    Failed,
    /// It was not asked: it lacks a capability, or is known to fail.
    Ignored,
}

impl Report {
    /// How many checks came to this.
    pub fn count(&self, status: Status) -> usize {
        self.checks.iter().filter(|check| check.status == status).count()
    }

    /// The checks that came to this.
    pub fn names(&self, status: Status) -> impl Iterator<Item = &str> {
        self.checks.iter().filter(move |check| check.status == status).map(|check| &*check.name)
    }

    /// The last line of the table: `N passed, N failed, N ignored`, after the suite's name.
    pub fn summary(&self) -> String {
        let [passed, failed, ignored] =
            [Status::Passed, Status::Failed, Status::Ignored].map(|status| self.count(status));
        format!("{}: {passed} passed, {failed} failed, {ignored} ignored", self.suite)
    }

    /// Whether none failed and one passed at least: a run that checked nothing proves nothing.
    pub fn is_success(&self) -> bool {
        self.count(Status::Failed) == 0 && self.count(Status::Passed) > 0
    }
}

/// A table for people, with the reasons of what did not pass. It ends in `N passed, N failed, N ignored`.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            writeln!(f, "{check}")?;
        }
        f.write_str(&self.summary())
    }
}

/// One line of that table, and one for the reason.
impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, group: _, status, reason, duration } = self;
        write!(f, "{:<8}{name:<60}{:>6} ms", status.word(), duration.as_millis())?;
        for line in reason.iter().flat_map(|reason| reason.lines()) {
            write!(f, "\n        {line}")?;
        }
        Ok(())
    }
}

impl Status {
    const fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed => "FAILED",
            Self::Ignored => "ignored",
        }
    }
}

mod whole_milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(statuses: &[Status]) -> Report {
        let check = |&status| CheckReport {
            name: "try_add::exactly_one_of_many_wins".into(),
            group: "try_add".into(),
            status,
            reason: (status != Status::Passed).then(|| "two won".into()),
            duration: Duration::from_millis(12),
        };
        Report { suite: "mystore".into(), seed: 7, checks: statuses.iter().map(check).collect() }
    }

    #[test]
    fn what_is_written_for_machines_is_read_again() {
        let report = report(&[Status::Passed, Status::Failed]);
        let json = serde_json::to_string(&report).unwrap();
        assert!(json.contains(r#""status":"failed","reason":"two won","duration_ms":12"#), "{json}");
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }

    #[test]
    fn what_is_written_for_people_ends_in_the_counts() {
        let text = report(&[Status::Passed, Status::Passed, Status::Failed, Status::Ignored]).to_string();
        assert!(text.ends_with("mystore: 2 passed, 1 failed, 1 ignored"), "{text}");
        assert!(text.contains("FAILED  try_add::exactly_one_of_many_wins"), "{text}");
    }

    #[test]
    fn a_run_that_checked_nothing_is_no_success() {
        assert!(report(&[Status::Passed, Status::Ignored]).is_success());
        assert!(!report(&[Status::Ignored]).is_success() && !report(&[]).is_success());
        assert!(!report(&[Status::Passed, Status::Failed]).is_success());
    }
}
