//! Instructions, counted by callgrind: the same binary runs again under it, and only one function is counted.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hint::black_box;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, available_parallelism};

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::operations::Meter;

/// The name of [`collected`] for callgrind.
const COLLECTED: &str = concat!(module_path!(), "::collected");

/// The function whose instructions callgrind counts. Every call ends with a dump of its own, which resets the counts.
#[inline(never)]
fn collected(work: &mut dyn FnMut()) {
    work();
    black_box(());
}

/// Runs every probe once inside of [`collected`] and remembers the order.
#[derive(Debug)]
pub(crate) struct Collected<P> {
    order: Vec<(P, usize)>,
}

impl<P> Default for Collected<P> {
    fn default() -> Self {
        Self { order: Vec::new() }
    }
}

impl<P: Serialize> Collected<P> {
    /// Prints the order, for the process that reads the counts.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(crate) fn tell(&self) -> anyhow::Result<()> {
        println!("{}", serde_json::to_string(&self.order)?);
        Ok(())
    }
}

impl<P> Meter<P> for Collected<P> {
    fn measure(&mut self, probe: P, count: usize, work: &mut dyn FnMut(usize)) {
        collected(&mut || (0..count).for_each(&mut *work));
        self.order.push((probe, count));
    }
}

/// Runs this binary under callgrind and returns the instructions of one operation of each probe.
///
/// # Errors
/// When callgrind does not run, or its output cannot be read.
pub(crate) fn instructions<P: Ord + DeserializeOwned>(arguments: &[OsString]) -> anyhow::Result<BTreeMap<P, f64>> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("counts");
    let mut out_file = OsString::from("--callgrind-out-file=");
    out_file.push(&out);
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .args(["--toggle-collect=", "--dump-after="].map(|flag| format!("{flag}{COLLECTED}")))
        .arg(out_file)
        .arg(std::env::current_exe()?)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .context("valgrind cannot be run")?;
    ensure!(output.status.success(), "under callgrind: {}", output.status);
    let order: Vec<(P, usize)> = serde_json::from_slice(&output.stdout).context("its list of probes")?;
    let mut totals: BTreeMap<P, (u64, usize)> = BTreeMap::new();
    for (number, (probe, count)) in (1..).zip(order) {
        let total = totals.entry(probe).or_default();
        total.0 += read(&out.with_extension(number.to_string()))?;
        total.1 += count;
    }
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let each = |(probe, (instructions, count))| (probe, instructions as f64 / count as f64);
    Ok(totals.into_iter().map(each).collect())
}

/// [`instructions`] of several runs, in their order. As many run at a time as there are cores.
///
/// # Errors
/// When one of them fails.
pub(crate) fn instructions_of_each<P>(runs: &[Vec<OsString>]) -> anyhow::Result<Vec<BTreeMap<P, f64>>>
where
    P: Ord + DeserializeOwned + Send,
{
    let next = AtomicUsize::new(0);
    let work = || {
        let mut counted = Vec::new();
        loop {
            let number = next.fetch_add(1, Relaxed);
            let Some(arguments) = runs.get(number) else { return counted };
            counted.push((number, instructions(arguments)));
        }
    };
    let mut counted: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..available_parallelism().map_or(1, usize::from)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    counted.sort_by_key(|&(number, _)| number);
    counted.into_iter().map(|(_, counts)| counts).collect()
}

/// Returns `true` if callgrind can be run.
#[must_use]
pub(crate) fn available() -> bool {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// The instructions of one dump (`totals:` of the callgrind profile format).
pub(crate) fn read(path: &Path) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(path).with_context(|| format!("callgrind wrote no {}", path.display()))?;
    let Some(total) = text.lines().find_map(|line| line.strip_prefix("totals: ")) else {
        bail!("{} has no totals", path.display());
    };
    Ok(total.trim().parse()?)
}
