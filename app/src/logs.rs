//! The process's own log: to stderr, for people or machines. The access log is a separate stream, in another module.

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::settings::LogForm;

/// Starts logging as the settings say. Called once.
pub(crate) fn start(level: &str, form: LogForm) -> anyhow::Result<()> {
    let filter = EnvFilter::builder().parse(level).context("--log-level")?;
    // A line that cannot be written is lost: reporting that on the same stderr would panic, and a closed terminal must
    // not keep the process from an orderly shutdown.
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).log_internal_errors(false);
    match form {
        LogForm::Json => lines.json().flatten_event(true).finish().try_init(),
        LogForm::Text => lines.with_target(false).with_ansi(io::stderr().is_terminal()).finish().try_init(),
    }
    .context("the log cannot be started")
}
