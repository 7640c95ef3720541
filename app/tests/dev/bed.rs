//! A running `tidegate dev` on a folder, its output, and the commands that query it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Long enough for a busy machine; a passing test never waits that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running `tidegate dev`; killed when the test fails before its end.
pub(crate) struct Dev {
    pub(crate) child: Child,
    folder: tempfile::TempDir,
    pub(crate) home: tempfile::TempDir,
    pub(crate) said: Vec<String>,
    pub(crate) stderr: mpsc::Receiver<String>,
}

impl Dev {
    pub(crate) fn start(files: &[(&str, String)]) -> Self {
        Self::with(files, &[], Stdio::piped())
    }

    /// Starts it with further arguments, and with the write end of its stderr, which is read only if it is piped.
    pub(crate) fn with(files: &[(&str, String)], arguments: &[&str], stderr: Stdio) -> Self {
        let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let any = "127.0.0.1:0";
        // An argument may be given only once.
        let admin = if arguments.contains(&"--admin") { &[][..] } else { &["--admin", any] };
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .arg("dev")
            .arg(folder.path())
            .args(["--http", any, "--https", any, "--debug", any, "--threads", "1"])
            .args(admin)
            .args(arguments)
            .env("TMPDIR", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let stdout = lines(child.stdout.take().unwrap());
        let stderr = child.stderr.take().map_or_else(|| mpsc::channel().1, lines);
        let mut dev = Self { child, folder, home, said: Vec::new(), stderr };
        while !dev.said.iter().any(|line| line.contains("Ctrl-C")) {
            let line = stdout.recv_timeout(PATIENCE).expect("what dev prints when it is ready");
            dev.said.push(line);
        }
        dev
    }

    /// The value after a word of the banner.
    pub(crate) fn place(&self, word: &str) -> String {
        let line = self.said.iter().find_map(|line| line.trim().strip_prefix(word));
        line.unwrap_or_else(|| panic!("no {word} in {:#?}", self.said)).trim().to_owned()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Status and body of a GET on a new connection.
    pub(crate) fn get(&self, host: &str, path: &str) -> (u16, String) {
        get(self.place("http ").trim_start_matches("http://"), host, path)
    }

    /// The address of a page of the banner.
    pub(crate) fn page(&self, word: &str) -> String {
        self.place(word).trim_start_matches("http://").split('/').next().unwrap().to_owned()
    }

    /// The whole response to a command at the debug address, with further header lines.
    pub(crate) fn post(&self, path: &str, lines: &str) -> String {
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n{lines}\r\n{{}}");
        send(&self.page("debug "), &head)
    }

    pub(crate) fn explain(&self, url: &str) -> Output {
        self.ask(&["explain", url])
    }

    /// Runs a command that queries the process.
    pub(crate) fn ask(&self, words: &[&str]) -> Output {
        self.asking(words).output().unwrap()
    }

    fn asking(&self, words: &[&str]) -> Command {
        let page = self.place("debug ");
        let address = page.trim_start_matches("http://").split('/').next().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(words).args(["--debug", address]);
        command
    }

    /// Runs a command whose output is not read: the pipe is closed, as `head` does after its lines.
    pub(crate) fn ask_unread(&self, words: &[&str]) -> Output {
        let mut child = self.asking(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        child.wait_with_output().unwrap()
    }

    /// The standard output of a command, which must exit with this code.
    #[track_caller]
    pub(crate) fn says(&self, words: &[&str], code: i32) -> String {
        let output = self.ask(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn lines(from: impl std::io::Read + Send + 'static) -> mpsc::Receiver<String> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    told
}

/// Reads until the connection ends.
fn send(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

pub(crate) fn get(address: &str, host: &str, path: &str) -> (u16, String) {
    let answer = send(address, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    let status = answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"));
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The running children of a process.
pub(crate) fn children(of: u32) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes.filter(|path| parent(path) == Some(of) && runs(path)).collect()
}

/// State and parent follow the name, which is in parentheses (proc(5)).
fn stat(process: &Path) -> Option<(String, u32)> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

fn parent(process: &Path) -> Option<u32> {
    stat(process).map(|(_, parent)| parent)
}

pub(crate) fn runs(process: &Path) -> bool {
    stat(process).is_some_and(|(state, _)| state != "Z")
}

pub(crate) fn app(replicas: u32) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: app}}
spec: {{selector: {{app: app}}, ports: [{{port: 80}}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: app}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: app}}}}
  template:
    metadata: {{labels: {{app: app}}}}
    spec: {{containers: [{{name: app, image: x}}]}}
"
    )
}

pub(crate) fn ingress(host: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: app}}
spec:
  rules:
  - host: {host}
    http:
      paths:
      - {{path: /, pathType: Prefix, backend: {{service: {{name: app, port: {{number: 80}}}}}}}}
"
    )
}
