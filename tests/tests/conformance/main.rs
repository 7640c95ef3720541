//! The conformance suite of the Gateway API against `tidegate run` on a real control plane, with exactly the rights of
//! `deploy/`. `tests/conformance/run` is the command for it; `docs/conformance/README.md` explains the parts that are
//! real.
//!
//! If the suite or the cluster cannot run, the cases are skipped by name.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

mod stage;
mod suite;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Trial};
use tidegate_tests::cluster::{Entered, Network, enter};
use tidegate_tests::skipped;

use stage::Place;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    if arguments.list {
        return left_out(&arguments);
    }
    let Some(built) = built() else {
        skipped("conformance", "the conformance suite of the Gateway API is not built (tests/conformance/build)");
        return left_out(&arguments);
    };
    match enter(Network::Bridged) {
        Entered::Inside { control_plane, folder } => {
            stage::run(&arguments, Place { control_plane, folder, built: built.into() })
        }
        Entered::Ended(code) => ExitCode::from(code),
        Entered::Not(lack) => {
            skipped("cluster", format_args!("the conformance suite of the Gateway API, because {lack}"));
            left_out(&arguments)
        }
    }
}

/// The folder with the suite, if it is built.
fn built() -> Option<String> {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/build");
    let output = Command::new(build).arg("--path").stderr(Stdio::null()).output().ok()?;
    let path = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
    Some(path.trim().to_owned())
}

/// Reports the cases as skipped if they cannot run.
fn left_out(arguments: &Arguments) -> ExitCode {
    let trial = |name: &str| Trial::test(name, || Ok(())).with_ignored_flag(true);
    libtest_mimic::run(arguments, stage::CASES.into_iter().map(trial).collect()).exit_code()
}
