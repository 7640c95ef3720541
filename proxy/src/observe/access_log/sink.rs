//! The destination of the access log.

use std::path::PathBuf;

/// The destination of the access log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum AccessLogSink {
    /// No log.
    Off,
    /// The standard output.
    #[default]
    Stdout,
    /// Appended to this file, which is created if it does not exist.
    File(PathBuf),
}
