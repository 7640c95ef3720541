//! `tidegate dev` as a child process, on free ports of loopback, with a folder of manifests of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::clock;
use crate::program::binary;

/// The time to end in order when its handle is dropped.
const END: Duration = Duration::from_secs(10);

/// The options of the process, except for its arguments.
#[derive(Debug, Default)]
pub struct Launch {
    /// Its limit of open files, soft and hard; by default, that of the test.
    pub open_files: Option<u32>,
    /// The file of its log; by default, the log goes to the output of the test.
    pub log: Option<PathBuf>,
}

impl Launch {
    fn command(&self) -> Command {
        let mut command = if let Some(limit) = self.open_files {
            // The shell execs the process, which so keeps the process id.
            let mut shell = Command::new("sh");
            shell.args(["-c", r#"ulimit -n "$0" && exec "$@""#, &limit.to_string()]).arg(binary());
            shell
        } else {
            Command::new(binary())
        };
        if let Some(path) = &self.log {
            command.stderr(std::fs::File::create(path).expect("a log file"));
        }
        command
    }
}

/// A running `tidegate dev`. It ends with its handle, and its files are removed.
#[derive(Debug)]
pub struct Dev {
    child: Child,
    folder: TempDir,
    /// Its folder for temporary files. It is removed after the process has ended, also when that had to be killed.
    _temporary: TempDir,
    /// The address of plain HTTP.
    pub http: SocketAddr,
    /// The address of HTTPS.
    pub https: SocketAddr,
    /// The address of health and metrics.
    pub admin: SocketAddr,
    /// The address of the dumps.
    pub debug: SocketAddr,
    /// The kubeconfig of the embedded API server.
    pub kubeconfig: PathBuf,
}

impl Dev {
    /// Starts it with these files in its folder and waits until it reports that it is ready.
    pub async fn start(files: &[(&str, &str)]) -> Self {
        Self::with(files, &[]).await
    }

    /// Like [`Dev::start`], with more arguments.
    pub async fn with(files: &[(&str, &str)], arguments: &[&str]) -> Self {
        Self::launched(files, arguments, &Launch::default()).await
    }

    /// Like [`Dev::with`], with limits and files of the process itself.
    pub async fn launched(files: &[(&str, &str)], arguments: &[&str], launch: &Launch) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("a manifest");
        }
        let temporary = tempfile::tempdir().expect("a folder");
        let mut command = launch.command();
        command.arg("dev").arg(folder.path()).env("TMPDIR", temporary.path());
        for flag in ["--http", "--https", "--admin", "--debug"] {
            command.args([flag, "127.0.0.1:0"]);
        }
        command.args(arguments).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("tidegate");
        let said = banner(&mut child).await;
        let place = |label: &str| -> SocketAddr {
            let line =
                said.iter().find_map(|line| line.trim().strip_prefix(label)).unwrap_or_else(|| panic!("{said:?}"));
            let address = line.trim().split("://").nth(1).expect("a URL");
            address.split('/').next().and_then(|text| text.parse().ok()).expect("an address")
        };
        let kubeconfig = said.iter().find_map(|line| line.trim().strip_prefix("export KUBECONFIG="));
        Self {
            http: place("http "),
            https: place("https "),
            admin: place("health "),
            debug: place("debug "),
            kubeconfig: kubeconfig.expect("a kubeconfig").into(),
            child,
            folder,
            _temporary: temporary,
        }
    }

    /// The folder of manifests.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Sends it a signal, such as `-INT`.
    pub async fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(signal).arg(self.id().to_string()).status().await.expect("kill");
        assert!(sent.success());
    }

    /// Waits until it has ended and returns its exit code.
    pub async fn ended(&mut self) -> Option<i32> {
        let status = tokio::time::timeout(Duration::from_secs(60), self.child.wait()).await.expect("it ends");
        status.expect("a status").code()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // `None` if it has been waited for.
        let Some(id) = self.child.id() else { return };
        let asked = std::process::Command::new("kill").arg(id.to_string()).status();
        let deadline = clock::now() + END;
        while asked.as_ref().is_ok_and(ExitStatus::success) && clock::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            clock::pause(Duration::from_millis(5));
        }
        // A process that has not ended is killed with `child`.
    }
}

/// Its output up to the last line of the banner; everything after that is read and discarded.
async fn banner(child: &mut Child) -> Vec<String> {
    let stdout = child.stdout.take().expect("piped");
    let mut lines = BufReader::new(stdout).lines();
    let mut said = Vec::new();
    let read = async {
        while let Some(line) = lines.next_line().await.expect("text") {
            let last = line.contains("Ctrl-C");
            said.push(line);
            if last {
                return;
            }
        }
        panic!("it ended before it was ready: {said:#?}");
    };
    tokio::time::timeout(Duration::from_secs(60), read).await.expect("it says that it is ready");
    tokio::spawn(async move { while lines.next_line().await.is_ok_and(|line| line.is_some()) {} });
    said
}
