//! The edge in a process of its own, so that the memory of clients and endpoints is not counted. The tests that use
//! this have a test `edge`, which is the process.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidegate_config::model::AppProtocol;
use tidegate_proxy::Driver;
use tokio::time::sleep;

use crate::request::bed::{Bed, Model, route};

/// The process with the edge.
pub struct Edge {
    child: Child,
    pub address: SocketAddr,
}

impl Edge {
    pub fn start(driver: Driver, protocol: AppProtocol, endpoint: SocketAddr) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "edge", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{driver:?} {protocol:?} {endpoint}").unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = said.find_map(|line| line.split_once("edge at ")?.1.parse().ok()).expect("no edge");
        // Later output is discarded, and must not block it.
        std::thread::spawn(move || said.for_each(drop));
        Self { child, address }
    }

    /// The resident memory in KiB.
    pub fn resident(&self) -> usize {
        self.status("VmRSS:")
    }

    /// The most that it ever was.
    pub fn peak(&self) -> usize {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches("kB").trim().parse().unwrap()
    }

    /// The resident memory, once it has not grown for a second.
    pub async fn settled(&self) -> usize {
        let mut resident = self.resident();
        loop {
            sleep(Duration::from_secs(1)).await;
            let now = self.resident();
            if now <= resident {
                return now;
            }
            resident = now;
        }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The allocator of `tidegate`, whose memory differs from that of the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Serves until the process is killed.
pub async fn serve() {
    // As `tidegate run` does.
    #[cfg(target_os = "linux")]
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    let mut asked = String::new();
    std::io::stdin().read_line(&mut asked).unwrap();
    let [driver, protocol, endpoint] = asked.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
    let drivers = [Driver::Both, Driver::Pingora];
    let driver = drivers.into_iter().find(|known| format!("{known:?}") == driver).unwrap();
    let known = [AppProtocol::Http, AppProtocol::Https, AppProtocol::H2c];
    let protocol = known.into_iter().find(|known| format!("{known:?}") == protocol).unwrap();
    let model = Model::default().route("a.test", route("web", protocol)).backend("web", &[endpoint.parse().unwrap()]);
    let bed = Bed::with(model, |options| options.driver = driver).await;
    println!("edge at {}", bed.address);
    std::future::pending::<()>().await;
}
