//! Facts about this machine: free ports, programs, and the kernel's counts for processes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Ticks of `/proc/PID/stat` in a second: `USER_HZ`, which is 100 on every Linux that Rust knows.
const TICKS_PER_SECOND: f64 = 100.0;
/// Bytes of a page, as `/proc/PID/statm` counts them on x86-64 and most arm64.
const PAGE_BYTES: u64 = 4096;

/// A loopback address whose port was free a moment ago; each call returns another one. It is below the ports that Linux
/// gives to sockets which ask for any port (`net.ipv4.ip_local_port_range`), so that none of those takes it.
///
/// # Errors
/// When none is free.
pub(crate) fn free_address() -> std::io::Result<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 16_384;
    // Each process begins elsewhere.
    let begin = std::process::id().wrapping_mul(617).to_le_bytes();
    let begin = u16::from_le_bytes([begin[0], begin[1]]);
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrInUse);
    for _ in 0..FIRST {
        let port = FIRST + begin.wrapping_add(NEXT.fetch_add(1, Relaxed)) % FIRST;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| listener.local_addr()) {
            Ok(address) => return Ok(address),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The first line of a program's version output; `None` if it is not installed. Some print it to stderr.
#[must_use]
pub(crate) fn version(program: &str, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).stdin(Stdio::null()).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    Some(
        String::from_utf8_lossy(&text)
            .lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default()
            .trim()
            .to_owned(),
    )
}

/// The machine in one line: its processor, cores, memory and kernel.
#[must_use]
pub(crate) fn machine() -> String {
    let field = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        line.and_then(|line| line.split_once(':').map(|(_, value)| value.trim().to_owned())).unwrap_or_default()
    };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kibibytes = field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let model = field("/proc/cpuinfo", "model name");
    format!("{model}, {cores} cores, {} GiB, Linux {}", kibibytes >> 20, kernel.trim())
}

/// The resources used by a process and its children.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Usage {
    /// CPU time in user mode, including children that have ended.
    pub(crate) user: Duration,
    /// CPU time in the kernel, including children that have ended.
    pub(crate) system: Duration,
    /// Memory that is resident now. Memory shared between processes counts for each.
    pub(crate) resident_bytes: u64,
    /// The number of running processes.
    pub(crate) processes: usize,
}

impl Usage {
    /// CPU time in user mode and in the kernel.
    #[must_use]
    pub(crate) fn cpu(&self) -> Duration {
        self.user + self.system
    }
}

/// The resources used by a process and all of its descendants; zero if it is gone.
#[must_use]
pub(crate) fn usage(process: u32) -> Usage {
    let mut usage = Usage::default();
    for (_, stat) in descendants(process) {
        usage.user += stat.user;
        usage.system += stat.system;
        usage.resident_bytes += stat.resident_bytes;
        usage.processes += 1;
    }
    usage
}

/// The resident memory of a process and all of its descendants, with shared memory divided among the processes (PSS):
/// for processes that share much, far less than [`Usage::resident_bytes`]. It costs the kernel a walk over all of their
/// pages.
#[must_use]
pub(crate) fn proportional_bytes(process: u32) -> u64 {
    let of = |id: u32| proportional_kib(&std::fs::read_to_string(format!("/proc/{id}/smaps_rollup")).ok()?);
    family(process).into_iter().filter_map(of).sum::<u64>() << 10
}

/// Parses the value in kB from proc_pid_smaps_rollup(5).
fn proportional_kib(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.parse().ok())
}

/// A process and all of its descendants.
#[must_use]
pub(crate) fn family(process: u32) -> Vec<u32> {
    descendants(process).into_iter().map(|(id, _)| id).collect()
}

fn descendants(process: u32) -> Vec<(u32, Stat)> {
    let mut stats: BTreeMap<u32, Stat> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(stat) = Stat::read(id) {
            stats.insert(id, stat);
        }
    }
    let (mut found, mut waiting) = (Vec::new(), vec![process]);
    while let Some(id) = waiting.pop() {
        let Some(stat) = stats.get(&id) else { continue };
        found.push((id, *stat));
        waiting.extend(stats.iter().filter(|(_, child)| child.parent == id).map(|(child, _)| *child));
    }
    found
}

#[derive(Clone, Copy, Debug)]
struct Stat {
    parent: u32,
    user: Duration,
    system: Duration,
    resident_bytes: u64,
}

impl Stat {
    fn read(id: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// Reads the fields that proc_pid_stat(5) numbers 4 (ppid), 14 to 17 (utime, stime, cutime, cstime) and 24 (rss).
    /// The name before them may hold anything, so they are counted from its last parenthesis.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        #[allow(clippy::cast_precision_loss, reason = "ticks far below 2^52")]
        let time = |of: [usize; 2]| {
            let ticks: u64 = of.into_iter().filter_map(number).sum();
            Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND)
        };
        let (user, system) = (time([14, 16]), time([15, 17]));
        Some(Self { parent: u32::try_from(number(4)?).ok()?, user, system, resident_bytes: number(24)? * PAGE_BYTES })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_parentheses_is_parsed() {
        let text = "7 (a) b) S 3 7 7 0 -1 4194560 10 0 0 0 100 50 25 30 20 0 1 0 99 1000 12 18446744073709551615 1 1";
        let stat = Stat::parse(text).unwrap();
        let (user, system) = (Duration::from_millis(1250), Duration::from_millis(800));
        assert_eq!((stat.parent, stat.user, stat.system, stat.resident_bytes), (3, user, system, 12 * 4096));
    }

    #[test]
    fn shared_memory_is_divided() {
        let text = "5581-7fff ---p 00000000 00:00 0 [rollup]\nRss:  884 kB\nPss:     385 kB\nPss_Anon: 1 kB\n";
        assert_eq!(proportional_kib(text), Some(385));
        // Other tests start and end children of this process.
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let (shared, resident) = (proportional_bytes(child.id()), usage(child.id()).resident_bytes);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(shared > 0 && shared < 2 * resident, "{shared} of {resident}");
    }

    #[test]
    fn a_process_counts_its_children() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let usage = usage(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(usage.processes >= 2 && usage.resident_bytes > 0, "{usage:?}");
    }
}
