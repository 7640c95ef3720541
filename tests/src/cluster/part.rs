//! One process of the cluster.

use std::fmt;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

/// The memory of a process.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Resident bytes.
    pub resident: u64,
    /// The maximum of resident bytes so far.
    pub peak: u64,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB, at most {} MiB", self.resident >> 20, self.peak >> 20)
    }
}

/// A process with its output in a file. It is killed with its handle.
#[derive(Debug)]
pub(crate) struct Part {
    child: Child,
    log: PathBuf,
}

impl Part {
    /// Starts it; its output is appended to `NAME.log` in the folder.
    pub(crate) fn start(folder: &Path, name: &str, command: &mut Command) -> Self {
        let log = folder.join(format!("{name}.log"));
        let file = OpenOptions::new().create(true).append(true).open(&log).expect("a log");
        let other = file.try_clone().expect("a log");
        command.stdin(Stdio::null()).stdout(file).stderr(other).kill_on_drop(true);
        Self { child: command.spawn().unwrap_or_else(|error| panic!("{name}: {error}")), log }
    }

    /// Sends it a signal, such as `-TERM`.
    pub(crate) async fn signal(&self, signal: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args([signal, &id]).status().await.expect("kill");
        assert!(sent.success());
    }

    /// Its memory now.
    pub(crate) fn memory(&self) -> Memory {
        let id = self.child.id().expect("it runs");
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("Linux tells");
        let bytes = |field: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
            line.trim_end_matches("kB").trim().parse::<u64>().expect("a number") * 1024
        };
        Memory { resident: bytes("VmRSS:"), peak: bytes("VmHWM:") }
    }

    /// Kills it as a crash would, and waits until it is gone.
    pub(crate) async fn crash(mut self) {
        self.child.kill().await.expect("it is killed");
    }

    /// Waits until it has ended by itself, and returns its exit code.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        self.child.wait().await.expect("a status").code()
    }

    /// The end of its output.
    pub(crate) fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}
