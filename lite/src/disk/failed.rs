//! The reasons why a folder cannot be used, derived from the errors of the library.

use std::fmt;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The latest file format of the library; a file of a later one is not damaged, but newer than this program.
const FILE_FORMAT: u8 = 3;

/// The reason why the folder of a [`Lite`](crate::Lite) cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DataDirError {
    /// Another process uses it.
    Locked,
    /// A later version of this program wrote it.
    Newer,
    /// It cannot be read: it was truncated, or changed by another program.
    Damaged(String),
    /// The file or its folder cannot be opened, read or written.
    Io(String),
}

impl fmt::Display for DataDirError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked => f.write_str("another process uses it; each process needs a folder of its own"),
            Self::Newer => f.write_str("a newer version of tidegate wrote it; use that version, or another folder"),
            Self::Damaged(why) => {
                write!(f, "it is damaged: {why}; move the folder away to begin with an empty one")
            }
            Self::Io(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for DataDirError {}

/// Runs an operation on the database. A damaged file may make the library panic, which must not end the process.
pub(super) fn contained<T, E: Into<redb::Error>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, DataDirError> {
    let panicked = |_| DataDirError::Damaged("the library that reads it has panicked".to_owned());
    catch_unwind(AssertUnwindSafe(work)).map_err(panicked)?.map_err(|error| why(&error.into()))
}

fn why(error: &redb::Error) -> DataDirError {
    #[allow(clippy::wildcard_enum_match_arm, reason = "the library may add errors; each is one of reading or writing")]
    match error {
        redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => DataDirError::Locked,
        redb::Error::UpgradeRequired(version) if *version > FILE_FORMAT => DataDirError::Newer,
        redb::Error::UpgradeRequired(_) | redb::Error::Corrupted(_) | redb::Error::TableTypeMismatch { .. } => {
            DataDirError::Damaged(error.to_string())
        }
        redb::Error::Io(io) if matches!(io.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => {
            DataDirError::Damaged(error.to_string())
        }
        _ => DataDirError::Io(error.to_string()),
    }
}
