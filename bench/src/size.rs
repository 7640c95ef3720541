//! How much a command measures.

use clap::ValueEnum;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Size {
    /// Seconds, or a minute: enough to see that everything works, as CI does. What is not installed fails it.
    Smoke,
    /// What the flags say.
    Full,
}

impl Size {
    /// Complains about what is left out of a smoke run, which would pass without having run.
    ///
    /// # Errors
    /// Names it.
    pub(crate) fn complete(self, left_out: &[String]) -> anyhow::Result<()> {
        anyhow::ensure!(self == Self::Full || left_out.is_empty(), "left out of a smoke run: {}", left_out.join("; "));
        Ok(())
    }
}
