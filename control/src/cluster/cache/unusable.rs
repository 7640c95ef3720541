//! The reasons why a store cannot be used, from the errors of the library.

use std::fmt;
use std::io::ErrorKind;

use redb::{DatabaseError, StorageError};
use tidegate_config::caught::caught;

/// The latest file format of the library; a file with a later one is not damaged, but newer than this program.
const FILE_FORMAT: u8 = 3;

/// The reason why a store cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnusableStore {
    /// Another process uses it.
    Locked,
    /// A later version of this program wrote it.
    Newer,
    /// Its Secrets were encrypted with another key.
    WrongKey,
    /// It cannot be read: it was truncated or changed by another program.
    Damaged(String),
    /// The file or its folder cannot be opened, read or written.
    Io(String),
}

impl fmt::Display for UnusableStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked => f.write_str("another process uses it; each process needs a folder of its own"),
            Self::Newer => {
                f.write_str("a newer version of tidegate wrote it; remove it to let this version write its own")
            }
            Self::WrongKey => f.write_str(
                "its Secrets were sealed by another key; give that key, or remove the folder to begin again",
            ),
            Self::Damaged(why) => write!(f, "it is damaged: {why}"),
            Self::Io(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for UnusableStore {}

/// Runs a database operation. A damaged file may make the library panic, which must not end the process.
pub(super) fn contained<T, E: Into<redb::Error>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, UnusableStore> {
    caught(work).map_err(UnusableStore::Damaged)?.map_err(|error| why(&error.into()))
}

fn why(error: &redb::Error) -> UnusableStore {
    #[allow(clippy::wildcard_enum_match_arm, reason = "the library may add errors; each is one of reading or writing")]
    match error {
        redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => UnusableStore::Locked,
        redb::Error::UpgradeRequired(version) if *version > FILE_FORMAT => UnusableStore::Newer,
        redb::Error::UpgradeRequired(_) | redb::Error::Corrupted(_) | redb::Error::TableTypeMismatch { .. } => {
            UnusableStore::Damaged(error.to_string())
        }
        redb::Error::Io(io) if matches!(io.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => {
            UnusableStore::Damaged(error.to_string())
        }
        _ => UnusableStore::Io(error.to_string()),
    }
}

impl From<DatabaseError> for UnusableStore {
    fn from(error: DatabaseError) -> Self {
        why(&error.into())
    }
}

impl From<StorageError> for UnusableStore {
    fn from(error: StorageError) -> Self {
        why(&error.into())
    }
}
