//! Commands of an operator while the loop runs, and their refusals.

use std::fmt;

use serde::Serialize;
use tidegate_config::model::Generation;

use crate::compile::Unit;
use crate::sample::Sample;

/// A command of an operator. It applies to this process only and ends with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase", tag = "verb", content = "of")]
pub enum Command {
    /// Keep the current routes, whatever changes in the cluster; endpoints are still updated.
    Freeze,
    /// Serve the routes of the cluster again.
    Thaw,
    /// Serve the routes of this generation, with the current endpoints, and keep them.
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

/// The effect of a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Commanded {
    /// The published generation.
    pub generation: Generation,
    /// The routing that differs from before: hosts, and other units.
    pub changed: Sample<Unit>,
}

/// The reason why a command is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandRefusal {
    /// The loop has no routes of the cluster yet.
    Starting,
    /// The routes of a generation are not available, or no longer.
    NotKept {
        /// The requested generation.
        asked: Generation,
        /// The oldest and the newest available generation.
        kept: (Generation, Generation),
    },
    /// The routes of the cluster are already served.
    NotHeld,
    /// The routes of this generation are held already.
    HeldAlready(Generation),
}

impl fmt::Display for CommandRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("the control loop has not started completely"),
            Self::NotKept { asked, kept: (oldest, newest) } => {
                write!(f, "generation {asked} cannot be restored; those from {oldest} to {newest} can")
            }
            Self::NotHeld => f.write_str("no routes are held: those of the cluster are served"),
            Self::HeldAlready(generation) => {
                write!(f, "the routes of generation {generation} are held already; thaw them first, or roll back")
            }
        }
    }
}
