//! Callgrind: whether it is there, and what it wrote.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// Whether callgrind can be run.
#[must_use]
pub(crate) fn available() -> bool {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// The instructions of one dump (`totals:` of the callgrind profile format).
pub(crate) fn read(path: &Path) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(path).with_context(|| format!("callgrind wrote no {}", path.display()))?;
    let Some(total) = text.lines().find_map(|line| line.strip_prefix("totals: ")) else {
        bail!("{} has no totals", path.display());
    };
    Ok(total.trim().parse()?)
}
