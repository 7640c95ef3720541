//! The real kubectl, restricted to the API server of a kubeconfig.

use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// kubectl with a home of its own.
#[derive(Debug)]
pub struct Kubectl {
    home: TempDir,
    kubeconfig: std::path::PathBuf,
}

impl Kubectl {
    /// Returns `None`, with one printed line, if the machine has no kubectl.
    #[must_use]
    pub fn for_config(kubeconfig: &Path) -> Option<Self> {
        if !Self::is_there() {
            crate::skipped("kubectl", "there is no kubectl");
            return None;
        }
        Some(Self { home: tempfile::tempdir().expect("a folder"), kubeconfig: kubeconfig.to_owned() })
    }

    /// Returns `true` if the machine has kubectl.
    pub(crate) fn is_there() -> bool {
        let mut command = std::process::Command::new("kubectl");
        let command = command.args(["version", "--client"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// A command that is ready to take arguments.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new("kubectl");
        command.env("KUBECONFIG", &self.kubeconfig).env("HOME", self.home.path()).kill_on_drop(true);
        command
    }

    /// Runs it and returns what it printed.
    ///
    /// # Panics
    /// When it fails.
    pub async fn run(&self, arguments: &[&str]) -> String {
        self.fed(arguments, "").await
    }

    /// Runs it with an input, such as a manifest for `apply -f -`, and returns what it printed.
    ///
    /// # Panics
    /// When it fails.
    pub async fn fed(&self, arguments: &[&str], input: &str) -> String {
        let (code, out, err) = self.tried(arguments, input).await;
        assert_eq!(code, Some(0), "kubectl {arguments:?}: {out}{err}");
        out
    }

    /// Runs it and returns its exit code, output and errors.
    pub async fn tried(&self, arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
        let mut command = self.command();
        command.args(arguments);
        Self::ended(command, input).await
    }

    /// Runs a prepared command with an input and returns its exit code, output and errors.
    pub async fn ended(mut command: Command, input: &str) -> (Option<i32>, String, String) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl");
        let mut stdin = child.stdin.take().expect("piped");
        // A command that fails early has not read it.
        drop(stdin.write_all(input.as_bytes()).await);
        drop(stdin);
        let output = child.wait_with_output().await.expect("kubectl ends");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}
