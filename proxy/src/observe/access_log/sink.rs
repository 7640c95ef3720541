//! Where the access log goes.

use std::path::PathBuf;

/// Where the access log goes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum AccessLogSink {
    /// Nowhere.
    Off,
    /// The standard output.
    #[default]
    Stdout,
    /// The end of this file, which is created where it does not exist.
    File(PathBuf),
}
