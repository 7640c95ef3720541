//! The size of a command's measurements.

use clap::ValueEnum;

/// The size of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Size {
    /// Seconds, or a minute: enough to see that everything works, as CI does. A tool that is not installed fails it.
    Smoke,
    /// The size given by the flags.
    Full,
}

impl Size {
    /// Fails a smoke run in which something was left out, since it would pass without having run.
    ///
    /// # Errors
    /// Names the missing parts.
    pub(crate) fn complete(self, left_out: &[String]) -> anyhow::Result<()> {
        anyhow::ensure!(self == Self::Full || left_out.is_empty(), "skipped in a smoke run: {}", left_out.join("; "));
        Ok(())
    }
}
