//! How much a command measures.

use clap::ValueEnum;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Size {
    /// Seconds, or a minute: enough to see that everything works, as CI does.
    Smoke,
    /// What the flags say.
    Full,
}
