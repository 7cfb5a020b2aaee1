//! What must survive a restart: the identity of each volume and the mark of each disk whose flush failed.
//!
//! A restart does not clear a poisoned disk (engine condition F3): the mark is written here, durably, before the failure
//! is answered to anyone a second time, and is removed only by the operator's command.

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::{Path, PathBuf};

/// Volume name to the 16 random bytes that its serial number and identifiers are made of.
const IDENTITIES: TableDefinition<'_, &str, [u8; 16]> = TableDefinition::new("volume-identities");
/// Disk name to why it is poisoned.
const POISONED: TableDefinition<'_, &str, &str> = TableDefinition::new("poisoned-disks");

/// Why the state could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("state folder {}: {source}", folder.display())]
pub(crate) struct StateError {
    folder: PathBuf,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// The state folder, open. One process at a time: a second one is refused by the lock on the database file.
#[derive(Debug)]
pub(crate) struct State {
    folder: PathBuf,
    database: Database,
}

impl State {
    /// Opens the folder, making it if it is missing.
    pub(crate) fn open(folder: &Path) -> Result<Self, StateError> {
        let fail = |source: Box<dyn std::error::Error + Send + Sync>| StateError { folder: folder.to_owned(), source };
        std::fs::create_dir_all(folder).map_err(|e| fail(e.into()))?;
        let database = Database::create(folder.join("state.redb")).map_err(|e| fail(e.into()))?;
        Ok(Self { folder: folder.to_owned(), database })
    }

    /// The identity of a volume, made on first use and the same ever after.
    pub(crate) fn identity(&self, volume: &str) -> Result<[u8; 16], StateError> {
        self.run(|| {
            if let Some(known) = self.lookup(volume)? {
                return Ok(known);
            }
            let fresh = random_bytes()?;
            let write = self.database.begin_write()?;
            write.open_table(IDENTITIES)?.insert(volume, fresh)?;
            write.commit()?;
            Ok(fresh)
        })
    }

    /// The names of the disks that are poisoned, each with the reason.
    pub(crate) fn poisoned(&self) -> Result<Vec<(String, String)>, StateError> {
        self.run(|| {
            let read = self.database.begin_read()?;
            let table = match read.open_table(POISONED) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                table => table?,
            };
            let mut marks = Vec::new();
            for entry in table.iter()? {
                let (disk, why) = entry?;
                marks.push((disk.value().to_owned(), why.value().to_owned()));
            }
            Ok(marks)
        })
    }

    /// Marks a disk. Durable when this returns.
    pub(crate) fn poison(&self, disk: &str, why: &str) -> Result<(), StateError> {
        self.run(|| {
            let write = self.database.begin_write()?;
            write.open_table(POISONED)?.insert(disk, why)?;
            Ok(write.commit()?)
        })
    }

    /// Removes the mark of a disk.
    pub(crate) fn heal(&self, disk: &str) -> Result<(), StateError> {
        self.run(|| {
            let write = self.database.begin_write()?;
            write.open_table(POISONED)?.remove(disk)?;
            Ok(write.commit()?)
        })
    }

    fn lookup(&self, volume: &str) -> Result<Option<[u8; 16]>, Box<dyn std::error::Error + Send + Sync>> {
        let read = self.database.begin_read()?;
        match read.open_table(IDENTITIES) {
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            table => Ok(table?.get(volume)?.map(|v| v.value())),
        }
    }

    fn run<T>(
        &self,
        work: impl FnOnce() -> Result<T, Box<dyn std::error::Error + Send + Sync>>,
    ) -> Result<T, StateError> {
        work().map_err(|source| StateError { folder: self.folder.clone(), source })
    }
}

fn random_bytes() -> std::io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    // Up to 256 bytes are never cut short (getrandom(2)).
    assert_eq!(got, bytes.len(), "getrandom returned {got} of 16 bytes");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_and_marks_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        let (a, b) = (state.identity("a").unwrap(), state.identity("b").unwrap());
        assert_ne!(a, b);
        state.poison("d0", "flush failed").unwrap();
        assert!(State::open(folder.path()).is_err(), "a second process is refused");
        drop(state);
        let state = State::open(folder.path()).unwrap();
        assert_eq!(state.identity("a").unwrap(), a);
        assert_eq!(state.poisoned().unwrap(), [("d0".to_owned(), "flush failed".to_owned())]);
        state.heal("d0").unwrap();
        assert_eq!(state.poisoned().unwrap(), []);
    }
}
