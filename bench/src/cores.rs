//! Which cores who runs on, where there are enough of them.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::place::family;

/// Cores for the load and what measures it.
const LOAD: usize = 2;

/// Who has which cores. Nobody is pinned where there are too few.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cores {
    all: usize,
    shares: Option<[Vec<usize>; 3]>,
}

/// Who runs on cores of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// The proxy whose turn it is; the others wait on the same cores.
    Proxy,
    /// The upstream.
    Upstream,
}

impl Cores {
    /// Shares out the cores that this process may use, and keeps itself, with everything that it starts from now on, to those of the
    /// load.
    ///
    /// # Errors
    /// When it may not.
    pub(crate) fn share(workers: usize) -> anyhow::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let ours: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
        let cores = Self::of(&ours, workers);
        if let Some([_, _, load]) = &cores.shares {
            pin(std::process::id(), load)?;
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

    /// Keeps a process, with its children, to the cores of its part.
    ///
    /// # Errors
    /// When it may not.
    pub(crate) fn give(&self, part: Part, process: u32) -> anyhow::Result<()> {
        let Some([proxy, upstream, _]) = &self.shares else { return Ok(()) };
        let cores = match part {
            Part::Proxy => proxy,
            Part::Upstream => upstream,
        };
        family(process).into_iter().try_for_each(|process| pin(process, cores))
    }

    /// In words.
    #[must_use]
    pub(crate) fn describe(&self) -> String {
        match &self.shares {
            Some([proxy, upstream, load]) => format!("proxy {proxy:?}, upstream {upstream:?}, load {load:?}"),
            None => format!("nobody is pinned, {} are too few", self.all),
        }
    }
}

/// Every thread that there is; those to come inherit it.
fn pin(process: u32, cores: &[usize]) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let id = thread?.file_name().to_str().and_then(|id| id.parse().ok()).and_then(Pid::from_raw);
        sched_setaffinity(id, &set)?;
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
    fn cores_are_shared_out_where_there_are_enough() {
        check(&[0, 1], 1, None);
        check(&[0, 1, 2], 1, None);
        check(&[0, 1, 2, 3], 1, Some([&[0], &[1], &[2, 3]]));
        check(&[1, 3, 5, 7], 2, None);
        check(&[1, 3, 5, 7, 9, 11], 2, Some([&[1, 3], &[5], &[7, 9, 11]]));
    }
}
