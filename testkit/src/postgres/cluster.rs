use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use tempfile::{NamedTempFile, TempDir};

use super::SUPERUSER;
use crate::process::{Owner, find_in_path, run};

/// The folder with the programs of one Postgres version.
///
/// `$LEASEHOLD_POSTGRES_BIN`, or the newest that Debian keeps out of the `PATH`, or that of the
/// `initdb` on the `PATH`.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    folder: PathBuf,
}

impl Programs {
    pub(super) fn find() -> Self {
        const VARIABLE: &str = "LEASEHOLD_POSTGRES_BIN";
        if let Some(folder) = std::env::var_os(VARIABLE) {
            let folder = PathBuf::from(folder);
            assert!(
                is_complete(&folder),
                "{VARIABLE} names {}, and there is no initdb, postgres and psql in it",
                folder.display()
            );
            return Self { folder };
        }
        let folder = newest_of_debian().or_else(|| {
            // A link in the PATH leads to where the rest is.
            let initdb = fs::canonicalize(find_in_path("initdb")?).ok()?;
            Some(initdb.parent()?.to_owned()).filter(|folder| is_complete(folder))
        });
        let folder = folder.unwrap_or_else(|| {
            panic!(
                "no Postgres found: run ./scripts/install-servers, or name the folder with its \
                 programs in {VARIABLE}"
            )
        });
        Self { folder }
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn postgres(&self) -> PathBuf {
        self.program("postgres")
    }

    pub(super) fn psql(&self) -> PathBuf {
        self.program("psql")
    }

    fn initdb(&self) -> PathBuf {
        self.program("initdb")
    }
}

/// Makes a fresh cluster in the folder `data`, which does not exist yet.
///
/// `initdb` takes a second or two and its result is always the same, so it runs once a machine,
/// user and version; every cluster is unpacked from that one archive in the folder for temporary
/// files. One archive and not a folder, because what tidies that folder takes old files singly.
pub(super) fn unpack(programs: &Programs, owner: Owner, data: &Path) {
    let archive = archive(programs, owner);
    let mut tar = Command::new("tar");
    // As root, tar gives the files back to the user that packed them.
    tar.arg("--extract")
        .arg("--file")
        .arg(&archive)
        .arg("--directory")
        .arg(data.parent().expect("a folder below the temporary one"));
    if let Err(error) = run(tar) {
        // Broken once must not mean broken for ever.
        let _ = fs::remove_file(&archive);
        panic!("cannot unpack {}: {error}", archive.display());
    }
}

fn archive(programs: &Programs, owner: Owner) -> PathBuf {
    let mut postgres = Command::new(programs.postgres());
    postgres.arg("--version");
    let version = run(postgres).unwrap_or_else(|error| panic!("postgres --version: {error}"));
    let version: String = version.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '.').collect();
    let user = geteuid().as_raw();
    let name = format!("leasehold-testkit-{version}-for-{user}");
    let archive = std::env::temp_dir().join(format!("{name}.tar"));

    // Only to save work: two that make it at once make the same, and the rename decides.
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(archive.with_extension("lock"))
        .expect("the folder for temporary files can be written");
    flock(&lock, FlockOperation::LockExclusive).expect("a local file can be locked");

    match fs::symlink_metadata(&archive) {
        // The folder is everyone's: what another user left there is not unpacked.
        Ok(found) => assert!(found.is_file() && found.uid() == user, "{} is not ours: remove it", archive.display()),
        Err(_) => pack(programs, owner, &archive),
    }
    archive
}

fn pack(programs: &Programs, owner: Owner, archive: &Path) {
    let folder = TempDir::with_prefix("leasehold-initdb-").expect("a temporary folder");
    owner.take(folder.path());
    let mut initdb = owner.command(&programs.initdb(), None);
    initdb.current_dir(folder.path()).args(["--pgdata=data", "--auth=trust", "--no-sync"]).args([
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "--username",
        SUPERUSER,
    ]);
    run(initdb).unwrap_or_else(|error| panic!("initdb in {} as {owner:?}: {error}", folder.path().display()));
    // Beside its last place, so that the rename is atomic: no one ever sees half an archive.
    let packed = NamedTempFile::new_in(archive.parent().expect("it is in a folder"))
        .expect("the folder for temporary files can be written");
    let mut tar = Command::new("tar");
    tar.arg("--create").arg("--file").arg(packed.path()).arg("--directory").arg(folder.path()).arg("data");
    run(tar).unwrap_or_else(|error| panic!("cannot pack a new cluster: {error}"));
    packed.persist(archive).unwrap_or_else(|error| panic!("cannot keep {}: {error}", archive.display()));
}

fn newest_of_debian() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    versions
        .filter_map(|version| {
            let version = version.ok()?;
            // As a number: 9 is older than 15.
            let number: u32 = version.file_name().to_str()?.parse().ok()?;
            Some((number, version.path().join("bin")))
        })
        .filter(|(_, folder)| is_complete(folder))
        .max()
        .map(|(_, folder)| folder)
}

fn is_complete(folder: &Path) -> bool {
    ["initdb", "postgres", "psql"].iter().all(|program| folder.join(program).is_file())
}
