//! The assignment of cores to processes, on machines with enough of them.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::process::{Child, Command};

/// Cores for the load generators and samplers.
const LOAD: usize = 2;

/// The assignment of cores. No process is pinned on a machine with too few.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cores {
    all: usize,
    shares: Option<[Vec<usize>; 3]>,
}

impl Cores {
    /// Divides the cores that this process may use, for proxies with at most this number of workers, and pins this
    /// process, with everything that it starts from now on, to those of the load.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub(crate) fn share(workers: usize) -> anyhow::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let ours: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
        let cores = Self::of(&ours, workers);
        if let Some([_, _, load]) = &cores.shares {
            pin_all(load)?;
        }
        Ok(cores)
    }

    fn of(ours: &[usize], workers: usize) -> Self {
        let enough = ours.len() >= workers + 1 + LOAD;
        let shares = enough.then(|| {
            let (proxy, rest) = ours.split_at(workers);
            let (upstream, load) = rest.split_at(1);
            [proxy, upstream, load].map(<[usize]>::to_vec)
        });
        Self { all: ours.len(), shares }
    }

    /// The cores of a proxy with this number of workers: as many cores. All proxies share them, and all but one of them
    /// wait.
    #[must_use]
    pub(crate) fn proxy(&self, workers: usize) -> Share {
        self.shares.as_ref().map_or(Share::ANY, |[proxy, _, _]| Share::of(proxy.iter().take(workers)))
    }

    /// The cores of the upstream.
    #[must_use]
    pub(crate) fn upstream(&self) -> Share {
        self.shares.as_ref().map_or(Share::ANY, |[_, upstream, _]| Share::of(upstream))
    }

    /// A description in words.
    #[must_use]
    pub(crate) fn describe(&self) -> String {
        match &self.shares {
            Some([proxy, upstream, load]) => {
                format!("proxy {proxy:?}, as many of them as it has workers, upstream {upstream:?}, load {load:?}")
            }
            None => format!("no process is pinned, {} are too few", self.all),
        }
    }
}

/// The cores that a process and its children run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share(Option<CpuSet>);

impl Share {
    /// The cores of the parent process.
    pub(crate) const ANY: Self = Self(None);

    fn of<'a>(cores: impl IntoIterator<Item = &'a usize>) -> Self {
        Self(Some(set(cores)))
    }

    /// Starts a command on these cores. A process inherits its cores from the thread that starts it, so that thread
    /// moves there for the moment.
    ///
    /// # Errors
    /// When the command cannot be run, or the kernel refuses the cores.
    pub(crate) fn spawn(self, command: &mut Command) -> std::io::Result<Child> {
        let Self(Some(cores)) = self else { return command.spawn() };
        let own = sched_getaffinity(None)?;
        sched_setaffinity(None, &cores)?;
        let child = command.spawn();
        sched_setaffinity(None, &own)?;
        child
    }
}

fn set<'a>(cores: impl IntoIterator<Item = &'a usize>) -> CpuSet {
    let mut set = CpuSet::new();
    cores.into_iter().for_each(|core| set.set(*core));
    set
}

/// Pins every thread of this process; later threads inherit it.
fn pin_all(cores: &[usize]) -> anyhow::Result<()> {
    for thread in std::fs::read_dir("/proc/self/task")? {
        let id = thread?.file_name().to_str().and_then(|id| id.parse().ok()).and_then(Pid::from_raw);
        sched_setaffinity(id, &set(cores))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ours: &[usize], workers: usize, want: Option<[&[usize]; 3]>) {
        assert_eq!(Cores::of(ours, workers).shares, want.map(|shares| shares.map(<[usize]>::to_vec)));
    }

    #[test]
    fn cores_are_assigned_if_there_are_enough() {
        check(&[0, 1], 1, None);
        check(&[0, 1, 2], 1, None);
        check(&[0, 1, 2, 3], 1, Some([&[0], &[1], &[2, 3]]));
        check(&[1, 3, 5, 7], 2, None);
        check(&[1, 3, 5, 7, 9, 11], 2, Some([&[1, 3], &[5], &[7, 9, 11]]));
    }

    #[track_caller]
    fn check_proxy(ours: &[usize], workers: usize, want: &[usize]) {
        assert_eq!(Cores::of(ours, 2).proxy(workers), Share::of(want), "{workers} workers");
    }

    #[test]
    fn a_proxy_has_as_many_cores_as_workers() {
        check_proxy(&[0, 2, 4, 6, 8], 1, &[0]);
        check_proxy(&[0, 2, 4, 6, 8], 2, &[0, 2]);
        assert_eq!(Cores::of(&[0, 2, 4, 6], 2).proxy(1), Share::ANY);
    }

    #[tokio::test]
    async fn a_child_runs_on_its_cores_and_its_parent_is_unaffected() {
        let own = sched_getaffinity(None).unwrap();
        let last = (0..CpuSet::MAX_CPU).rfind(|core| own.is_set(*core)).unwrap();
        let mut child = Share::of(&[last]).spawn(Command::new("sleep").arg("60").kill_on_drop(true)).unwrap();
        let process = child.id().and_then(|id| Pid::from_raw(id.try_into().unwrap()));
        assert_eq!(sched_getaffinity(process).unwrap(), set(&[last]));
        assert_eq!(sched_getaffinity(None).unwrap(), own);
        child.kill().await.unwrap();
    }
}
