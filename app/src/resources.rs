//! The limits of open files and memory of the process, and the budget of traffic that follows from them.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_proxy::BudgetLimits;

/// Files reserved for everything except traffic and the served API: the process's own pages, each on a socket of its
/// own, and as many again for the API server, DNS, logs and listening sockets.
const RESERVE: u64 = 4 * crate::serve::CONNECTIONS_MAX as u64;

/// Files that the runtime of a traffic thread needs for itself.
const OF_THREAD: u64 = 4;

/// The divisor of the files for connections to the served API: a quarter at most.
const SERVED_PART: u64 = 4;

/// Pools of connections that a thread keeps idle: to endpoints in HTTP/1.1 and in HTTP/2, and to authorisation
/// services.
const POOLS: u64 = 3;

/// Connections in each of them at most.
const POOL_MAX: u64 = 512;

/// The share of the memory for traffic, in percent; the rest is for the routing model and the process itself.
const TRAFFIC_PERCENT: u64 = 70;

/// Raises the limit of open files to its maximum, and returns the result; `None` means no limit.
pub(crate) fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, ?current, ?maximum, "the limit of open files cannot be raised");
            current
        }
    }
}

/// The maximum number of connections to the served API: the number in the settings, or as many as there are files for
/// them.
pub(crate) fn served_max(open_files: Option<u64>, asked: usize) -> usize {
    let part = open_files.and_then(|files| usize::try_from(files / SERVED_PART).ok());
    part.map_or(asked, |part| part.max(1).min(asked))
}

/// Shares out the open files that the served API leaves: sets those of traffic, and returns the number of connections
/// that each thread keeps idle in each of its pools.
pub(crate) fn share_files(
    open_files: Option<u64>,
    threads: usize,
    limits: &mut BudgetLimits,
    served_max: usize,
) -> usize {
    let Some(files) = open_files else { return usize::try_from(POOL_MAX).unwrap_or(1) };
    let threads = (threads as u64).max(1);
    let pools = POOLS * threads;
    let traffic = files.saturating_sub(RESERVE + OF_THREAD * threads + served_max as u64);
    let pool = (traffic / 4 / pools).clamp(1, POOL_MAX);
    // A connection and its request use two files.
    let rest = traffic.saturating_sub(pool * pools).max(2);
    limits.files = u32::try_from(rest).map_or(limits.files, |rest| rest.min(limits.files));
    usize::try_from(pool).unwrap_or(1)
}

/// Divides the memory available to the process, in KiB.
pub(crate) const fn share_memory(memory_kib: Option<u64>, limits: &mut BudgetLimits) {
    if let Some(memory_kib) = memory_kib {
        limits.resident_max_kib = memory_kib;
        limits.memory_kib = memory_kib / 100 * TRAFFIC_PERCENT;
    }
}

/// The memory available to the process, in KiB: the least limit of its control groups, or else that of the machine;
/// `None` if the kernel reports neither.
pub(crate) fn memory_max_kib() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = limit_files(&groups).iter().filter_map(|file| bytes(&std::fs::read_to_string(file).ok()?)).min();
    let machine = kib(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:");
    limit.map(|bytes| bytes / 1024).into_iter().chain(machine).min()
}

/// The resident memory of the process, in KiB; `None` if the kernel does not report it.
pub(crate) fn resident_kib() -> Option<u64> {
    kib(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// The files that may have a memory limit for the groups of `/proc/self/cgroup` and of those above them (cgroups(7)).
/// In a container the path may be that of the host, and the file is at the root.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let (root, name) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        let own = Path::new(group.trim_start_matches('/'));
        files.extend(own.ancestors().map(|group| Path::new(root).join(group).join(name)));
    }
    files
}

/// Parses a limit; `None` for `max`, which means no limit.
fn bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// A size from a file in `/proc` (proc(5)): a line of its name, a number and `kB`.
fn kib(text: &str, name: &str) -> Option<u64> {
    let size = text.lines().find_map(|line| line.strip_prefix(name))?;
    size.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_files(open_files: Option<u64>, threads: usize, want: (u32, usize)) {
        let mut limits = BudgetLimits::default();
        let pool = share_files(open_files, threads, &mut limits, 0);
        assert_eq!((limits.files, pool), want, "{open_files:?}");
        let own = RESERVE + OF_THREAD * threads as u64;
        let all = u64::from(limits.files) + POOLS * (threads * pool) as u64 + own;
        assert!(open_files.is_none_or(|files| all <= files || files < own + POOLS + 2), "{open_files:?}: {all}");
    }

    #[track_caller]
    fn check_served(open_files: Option<u64>, asked: usize, want: (u32, usize)) {
        let (mut limits, served) = (BudgetLimits::default(), served_max(open_files, asked));
        let pool = share_files(open_files, 2, &mut limits, served);
        assert_eq!((limits.files, served), want, "{open_files:?}");
        let all = u64::from(limits.files) + POOLS * (2 * pool) as u64 + RESERVE + 2 * OF_THREAD + served as u64;
        assert!(open_files.is_none_or(|files| all <= files), "{open_files:?}: {all}");
    }

    #[test]
    fn connections_to_the_served_api_have_files_of_their_own() {
        check_served(None, 2048, (BudgetLimits::default().files, 2048));
        check_served(Some(65_536), 2048, (60_152, 2048));
        check_served(Some(65_536), 1 << 20, (45_816, 16_384));
        check_served(Some(1500), 2048, (651, 375));
        check_served(Some(1024), 100, (498, 100));
    }

    #[test]
    fn all_limits_fit_into_the_open_file_limit() {
        check_files(None, 2, (BudgetLimits::default().files, 512));
        check_files(Some(u64::MAX), 2, (BudgetLimits::default().files, 512));
        check_files(Some(1_048_576), 2, (1_045_240, 512));
        check_files(Some(65_536), 2, (62_200, 512));
        check_files(Some(65_536), 64, (48_896, 84));
        check_files(Some(1500), 2, (930, 51));
        check_files(Some(1024), 2, (574, 31));
        check_files(Some(260), 1, (2, 1));
        check_files(Some(0), 2, (2, 1));
    }

    #[test]
    fn traffic_has_its_share_of_the_memory() {
        let mut limits = BudgetLimits::default();
        share_memory(None, &mut limits);
        assert_eq!(limits, BudgetLimits::default());
        share_memory(Some(1024 * 1024), &mut limits);
        assert_eq!((limits.memory_kib, limits.resident_max_kib), (733_950, 1_048_576));
    }

    #[test]
    fn the_limit_is_read_from_every_cgroup() {
        let shown = |groups: &str| {
            let files = limit_files(groups);
            files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown("0::/\n"), "/sys/fs/cgroup/memory.max");
        assert_eq!(
            shown("0::/a/b\n"),
            "/sys/fs/cgroup/a/b/memory.max /sys/fs/cgroup/a/memory.max /sys/fs/cgroup/memory.max"
        );
        assert_eq!(
            shown("3:cpu,cpuacct:/x\n4:memory:/x\nbroken\n"),
            "/sys/fs/cgroup/memory/x/memory.limit_in_bytes /sys/fs/cgroup/memory/memory.limit_in_bytes"
        );
        assert_eq!((bytes("max\n"), bytes("1073741824\n")), (None, Some(1_073_741_824)));
    }

    #[test]
    fn sizes_of_the_kernel_are_parsed() {
        assert_eq!(kib("MemTotal:       24689764 kB\nMemFree: 1 kB\n", "MemTotal:"), Some(24_689_764));
        assert_eq!(kib("Name:\tx\nVmRSS:\t    1536 kB\n", "VmRSS:"), Some(1536));
        assert_eq!((kib("VmRSS: x kB", "VmRSS:"), kib("VmRSS: 1", "VmRSS:"), kib("", "VmRSS:")), (None, None, None));
        assert!(cfg!(not(target_os = "linux")) || resident_kib().is_some_and(|kib| kib > 0));
        assert!(cfg!(not(target_os = "linux")) || memory_max_kib().is_some_and(|kib| kib > 0));
    }

    #[test]
    fn the_limit_is_raised_to_the_hard_limit() {
        let raised = raise();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!((raised, limit.current), (limit.maximum, limit.maximum));
    }
}
