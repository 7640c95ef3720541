//! Instructions, counted by callgrind: the same binary runs again under it, and only what happens inside of one function is
//! counted.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hint::black_box;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::probe::{Meter, Probe};
use crate::callgrind::read;

/// How callgrind is told of [`collected`].
const COLLECTED: &str = concat!(module_path!(), "::collected");

/// What callgrind counts. Every call ends with a dump of its own, which starts the counts anew.
#[inline(never)]
fn collected(work: &mut dyn FnMut()) {
    work();
    black_box(());
}

/// Runs every probe once inside of [`collected`] and remembers in which order.
#[derive(Debug, Default)]
pub(super) struct Collected {
    order: Vec<(Probe, usize)>,
}

impl Collected {
    /// Prints the order, for the process that reads the counts.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(super) fn tell(&self) -> anyhow::Result<()> {
        println!("{}", serde_json::to_string(&self.order)?);
        Ok(())
    }
}

impl Meter for Collected {
    fn measure(&mut self, probe: Probe, count: usize, work: &mut dyn FnMut(usize)) {
        collected(&mut || (0..count).for_each(&mut *work));
        self.order.push((probe, count));
    }
}

/// Runs this binary under callgrind and returns the instructions of one operation of each probe.
///
/// # Errors
/// When it does not run, or what it writes cannot be read.
pub(super) fn instructions(arguments: &[OsString]) -> anyhow::Result<BTreeMap<Probe, f64>> {
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
    let order: Vec<(Probe, usize)> = serde_json::from_slice(&output.stdout).context("its list of probes")?;
    let mut totals: BTreeMap<Probe, (u64, usize)> = BTreeMap::new();
    for (number, (probe, count)) in (1..).zip(order) {
        let total = totals.entry(probe).or_default();
        total.0 += read(&out.with_extension(number.to_string()))?;
        total.1 += count;
    }
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let each = |(probe, (instructions, count))| (probe, instructions as f64 / count as f64);
    Ok(totals.into_iter().map(each).collect())
}
