//! What an operator may command while the loop runs, and why that may be refused.

use std::fmt;

use serde::Serialize;
use tidegate_config::model::Generation;

/// What an operator may command. It is for this process and is forgotten when that ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase", tag = "verb", content = "of")]
pub enum Command {
    /// Keep the routes that serve now, whatever becomes of the cluster's; endpoints still follow.
    Freeze,
    /// Serve the routes of the cluster again.
    Thaw,
    /// Serve the routes that this generation had, with the endpoints of today, and keep them.
    Rollback(Generation),
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Freeze => f.write_str("freeze"),
            Self::Thaw => f.write_str("thaw"),
            Self::Rollback(generation) => write!(f, "rollback to generation {generation}"),
        }
    }
}

/// Why a command cannot be carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The loop has no routes of the cluster yet, or not again.
    Starting,
    /// The routes of a generation are not there, or no longer.
    NotKept {
        /// The generation that was asked for.
        asked: Generation,
        /// The oldest and the newest that can be gone back to.
        kept: (Generation, Generation),
    },
    /// The routes of the cluster serve already.
    NotHeld,
    /// The routes of this generation are kept already.
    HeldAlready(Generation),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("the control loop has only begun"),
            Self::NotKept { asked, kept: (oldest, newest) } => {
                write!(f, "the routes of generation {asked} are not kept; those of {oldest} to {newest} are")
            }
            Self::NotHeld => f.write_str("nothing is held: the routes of the cluster serve"),
            Self::HeldAlready(generation) => {
                write!(f, "the routes of generation {generation} are held already; thaw them first, or roll back")
            }
        }
    }
}
