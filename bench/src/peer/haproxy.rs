//! HAProxy as its controllers drive it: routes are in a map, endpoints in slots, and both are changed over the runtime
//! socket. A new backend takes a reload.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::{Change, Protocol, Route, Setting, Target, appended, error_file, log_file};
use crate::clock::now;
use crate::cores::Share;
use crate::identity::Identity;
use crate::place::free_address;
use crate::process::Group;
use crate::upstream::PODS;

/// The maximum number of commands sent before their answers are read.
const COMMANDS_MAX: usize = 64;
/// The maximum time for an answer. In a large map, each change walks through all of it.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The maximum time for a reload.
const RELOAD_MAX: Duration = Duration::from_secs(300);
/// After this time without a new worker, the reload is requested again.
const RELOAD_AGAIN: Duration = Duration::from_secs(20);
/// The end of every answer.
const PROMPT: &str = "\n> ";

/// One line of JSON per request, with the fields of Tidegate's.
const LOG: &str = r#"    log-format '{"time":"%tr","request_id":"%ID","client":"%ci","method":"%HM","scheme":"%[ssl_fc,iif(https,http)]","host":"%[capture.req.hdr(0),json(utf8s)]","path":"%[capture.req.uri,json(utf8s)]","protocol":"%HV","status":%ST,"bytes_in":%U,"bytes_out":%B,"duration_ms":%Ta,"upstream":"%si:%sp","upstream_connect_ms":%Tc,"upstream_first_byte_ms":%Tr,"tries":"%rc","object":"%b","tls":"%sslv","user_agent":"%[capture.req.hdr(1),json(utf8s)]","referer":"%[capture.req.hdr(2),json(utf8s)]"}'
"#;
/// The headers that Tidegate sends to endpoints, and the values that the log needs.
const HEADERS: &str = "    unique-id-format %[uuid]
    http-request capture req.hdr(host) len 128
    http-request capture req.hdr(user-agent) len 128
    http-request capture req.hdr(referer) len 128
    http-request set-header X-Request-Id %[unique-id]
    http-request set-header X-Real-IP %[src]
    http-request set-header X-Forwarded-For %[src]
    http-request set-header X-Forwarded-Host %[req.hdr(host)]
    http-request set-header X-Forwarded-Port %[dst_port]
    http-request set-header X-Forwarded-Proto %[ssl_fc,iif(https,http)]
";

/// A running HAProxy.
#[derive(Debug)]
pub(crate) struct Peer {
    group: Group,
    share: Share,
    folder: TempDir,
    address: SocketAddr,
    secure: SocketAddr,
    /// The configuration before the backends of single hosts.
    preamble: String,
    upstream: SocketAddr,
    routes: BTreeMap<String, Target>,
    /// The endpoints in the slots of [`Target::Rolled`].
    slots: [Option<SocketAddr>; PODS],
    socket: Option<UnixStream>,
}

impl Peer {
    pub(super) fn start(setting: &Setting<'_>, routes: &[Route]) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidegate-bench-haproxy-").tempdir()?;
        let identity = Identity::new()?;
        std::fs::write(folder.path().join("tls.pem"), identity.certificate + &identity.key)?;
        let (address, secure) = (free_address()?, free_address()?);
        let mut slots = [None; PODS];
        for (slot, endpoint) in slots.iter_mut().zip(setting.endpoints) {
            *slot = Some(*endpoint);
        }
        let preamble = preamble(folder.path(), [address, secure, free_address()?], setting, &slots);
        let routes: BTreeMap<_, _> = routes.iter().map(|route| (route.host.clone(), route.target)).collect();
        write(folder.path(), &preamble, &routes, setting.upstream.http)?;
        let group = spawn(folder.path(), setting.share)?;
        let upstream = setting.upstream.http;
        let share = setting.share;
        Ok(Self { group, share, folder, address, secure, preamble, upstream, routes, slots, socket: None })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) const fn secure(&self) -> SocketAddr {
        self.secure
    }

    pub(super) fn process(&self) -> Option<u32> {
        self.group.child.id()
    }

    pub(super) fn log(&self) -> PathBuf {
        log_file(self.folder.path())
    }

    pub(super) async fn change(&mut self, change: &Change<'_>) -> anyhow::Result<()> {
        let map = self.folder.path().join("routes.map").display().to_string();
        let (mut commands, mut reload) = (Vec::new(), false);
        for Route { host, target } in change.routes {
            let before = self.routes.insert(host.clone(), *target);
            reload |= *target == Target::Own && before != Some(Target::Own);
            let verb = if before.is_some() { "set" } else { "add" };
            commands.push(format!("{verb} map {map} {host} {}", target.service(host)));
        }
        if let Some(endpoints) = change.endpoints {
            commands.extend(roll(&mut self.slots, endpoints));
        }
        if reload { self.reload().await } else { self.tell(&commands).await }
    }

    pub(super) async fn remove(&mut self, host: &str) -> anyhow::Result<()> {
        let map = self.folder.path().join("routes.map").display().to_string();
        self.routes.remove(host);
        self.tell(&[format!("del map {map} {host}")]).await
    }

    pub(super) fn restart(&mut self) -> anyhow::Result<Instant> {
        write(self.folder.path(), &self.preamble, &self.routes, self.upstream)?;
        self.socket = None;
        self.group.end();
        let begun = now();
        self.group = spawn(self.folder.path(), self.share)?;
        Ok(begun)
    }

    /// Starts new workers with the current configuration; the old ones finish their requests.
    async fn reload(&mut self) -> anyhow::Result<()> {
        write(self.folder.path(), &self.preamble, &self.routes, self.upstream)?;
        let before = self.worker().await?;
        let id = self.process().and_then(|id| Pid::from_raw(id.try_into().ok()?)).context("haproxy ended")?;
        let reloaded = async {
            // The new worker answers before the master has finished the reload, and a signal that comes in between is
            // lost.
            loop {
                kill_process(id, Signal::USR2)?;
                if timeout(RELOAD_AGAIN, self.until_other_than(&before)).await.is_ok() {
                    return Ok(());
                }
            }
        };
        timeout(RELOAD_MAX, reloaded).await.context("haproxy does not reload")?
    }

    async fn until_other_than(&mut self, worker: &str) {
        loop {
            self.socket = None;
            if self.worker().await.is_ok_and(|now| now != worker) {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// The worker that answers at the socket.
    async fn worker(&mut self) -> anyhow::Result<String> {
        let [answer] = &self.ask(&["show info".to_owned()]).await?[..] else { bail!("one answer to one question") };
        let process = answer.lines().find(|line| line.starts_with("Pid:"));
        process.map(str::to_owned).context("a worker without an id")
    }

    /// Makes changes. The answer to a change is empty, or describes a changed server.
    async fn tell(&mut self, commands: &[String]) -> anyhow::Result<()> {
        for (answer, command) in self.ask(commands).await?.iter().zip(commands) {
            let made = answer.is_empty() || (command.starts_with("set server") && answer.contains("chang"));
            ensure!(made, "{command}: {answer}");
        }
        Ok(())
    }

    /// Sends commands over one connection that is kept, and returns their answers.
    async fn ask(&mut self, commands: &[String]) -> anyhow::Result<Vec<String>> {
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => connect(&self.folder.path().join("admin.sock")).await?,
        };
        let mut answers = Vec::new();
        for some in commands.chunks(COMMANDS_MAX) {
            socket.write_all((some.join("\n") + "\n").as_bytes()).await?;
            answers.extend(read(&mut socket, some.len()).await?);
        }
        self.socket = Some(socket);
        Ok(answers)
    }
}

async fn connect(path: &Path) -> anyhow::Result<UnixStream> {
    let connecting = async {
        loop {
            match UnixStream::connect(path).await {
                Ok(socket) => return socket,
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let mut socket = timeout(RELOAD_MAX, connecting).await.context("haproxy opens no socket")?;
    socket.write_all(b"prompt\n").await?;
    read(&mut socket, 1).await?;
    Ok(socket)
}

/// Reads this number of answers.
async fn read(socket: &mut UnixStream, count: usize) -> anyhow::Result<Vec<String>> {
    let mut text = String::new();
    let mut bytes = [0; 4096];
    while text.matches(PROMPT).count() < count {
        let read = timeout(ANSWER_MAX, socket.read(&mut bytes)).await.context("haproxy does not answer")??;
        ensure!(read > 0, "haproxy closed its socket after {text:?}");
        text += &String::from_utf8_lossy(bytes.get(..read).unwrap_or_default());
    }
    Ok(text.split(PROMPT).take(count).map(|answer| answer.trim().to_owned()).collect())
}

/// Frees the slots of endpoints that are gone, and puts new ones into free slots.
fn roll(slots: &mut [Option<SocketAddr>], endpoints: &[SocketAddr]) -> Vec<String> {
    let (mut commands, backend) = (Vec::new(), Target::Rolled.service(""));
    for endpoint in endpoints {
        if slots.contains(&Some(*endpoint)) {
            continue;
        }
        let Some(free) = slots.iter().position(Option::is_none) else { break };
        if let Some(slot) = slots.get_mut(free) {
            *slot = Some(*endpoint);
        }
        let (ip, port) = (endpoint.ip(), endpoint.port());
        commands.push(format!("set server {backend}/s{free} addr {ip} port {port}"));
        commands.push(format!("set server {backend}/s{free} state ready"));
    }
    for (number, slot) in slots.iter_mut().enumerate() {
        if slot.is_some_and(|endpoint| !endpoints.contains(&endpoint)) {
            *slot = None;
            commands.push(format!("set server {backend}/s{number} state maint"));
        }
    }
    commands
}

/// Starts it under a master process, as in its packages and images. The log is its output.
fn spawn(folder: &Path, share: Share) -> anyhow::Result<Group> {
    let (log, errors) = (appended(&log_file(folder))?, appended(&error_file(folder))?);
    let mut command = Command::new("haproxy");
    command.args(["-W", "-db", "-f"]).arg(folder.join("haproxy.cfg"));
    Group::spawn(command.stdin(Stdio::null()).stdout(log).stderr(errors), share).context("bench/setup installs it")
}

fn write(folder: &Path, preamble: &str, routes: &BTreeMap<String, Target>, upstream: SocketAddr) -> anyhow::Result<()> {
    let (mut configuration, mut map) = (preamble.to_owned(), String::new());
    for (host, target) in routes {
        let service = target.service(host);
        writeln!(map, "{host} {service}")?;
        if *target == Target::Own {
            write!(configuration, "backend {service}\n    server s0 {upstream}\n")?;
        }
    }
    std::fs::write(folder.join("haproxy.cfg"), configuration)?;
    std::fs::write(folder.join("routes.map"), map)?;
    Ok(())
}

/// The static part: the sockets, the work on every request, and the backends that routes share.
fn preamble(
    folder: &Path,
    [address, secure, status]: [SocketAddr; 3],
    setting: &Setting<'_>,
    slots: &[Option<SocketAddr>],
) -> String {
    let (folder, threads, same) = (folder.display(), setting.workers, setting.work.is_same());
    let (headers, log, to) =
        if same { (HEADERS, LOG, "log stdout len 4096 format raw local0") } else { ("", "", "# no log") };
    let mut text = format!(
        "global
    nbthread {threads}
    tune.bufsize 65536
    tune.h2.initial-window-size 262144
    {to}
    stats socket {folder}/admin.sock mode 600 level admin
    stats timeout 1h
defaults
    mode http
    log global
    option dontlognull
    timeout connect 5s
    timeout client 600s
    timeout server 60s
    timeout tunnel 1h
    timeout http-request 30s
    timeout http-keep-alive 600s
    http-reuse always
frontend edge
    bind {address} backlog 4096 shards by-thread
    bind {secure} backlog 4096 shards by-thread ssl crt {folder}/tls.pem alpn h2,http/1.1
{log}{headers}    use_backend %[req.hdr(host),field(1,:),lower,map_str({folder}/routes.map,nobody)]
backend nobody
    http-request return status 404
"
    );
    if same {
        text += &format!(
            "frontend status\n    bind {status}\n    http-request use-service prometheus-exporter if {{ path /metrics }}\n    no log\n"
        );
    }
    for target in Target::SHARED {
        let (name, address) = (target.service(""), target.address(setting.upstream));
        let protocol = match target.protocol() {
            Protocol::Http1 => "",
            Protocol::Http2 => " proto h2",
            Protocol::Tls => " ssl verify none",
        };
        text += &format!("backend {name}\n    server s0 {address}{protocol}\n");
    }
    text += &format!("backend {}\n", Target::Rolled.service(""));
    for (number, slot) in slots.iter().enumerate() {
        text += &match slot {
            Some(endpoint) => format!("    server s{number} {endpoint}\n"),
            None => format!("    server s{number} {} disabled\n", setting.upstream.http),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remaining_endpoint_keeps_its_slot() {
        let [a, b, c] = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"].map(|address| address.parse().unwrap());
        let mut slots = [Some(a), Some(b), None];
        let commands = roll(&mut slots, &[b, c]);
        assert_eq!(slots, [None, Some(b), Some(c)]);
        let want = [
            "set server rolled/s2 addr 10.0.0.3 port 80",
            "set server rolled/s2 state ready",
            "set server rolled/s0 state maint",
        ];
        assert_eq!(commands, want);
        assert!(roll(&mut slots, &[b, c]).is_empty());
    }
}
