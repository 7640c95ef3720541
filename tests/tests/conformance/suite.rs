//! The suite as a process: its results as they come, and their counts.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// The flag with which the suite prints each result at once, on a line that begins with the mark below.
const VERBOSE: &str = "-test.v=test2json";
const MARK: char = '\u{16}';

/// The timeout of one run, unless its arguments have another.
const TIMEOUT: &str = "-test.timeout=50m";

/// The suite's program and its inputs.
pub(crate) struct Suite {
    pub(crate) program: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    /// The folder of its output, `suite.log`.
    pub(crate) folder: PathBuf,
}

/// The counts of the suite's results.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: Vec<String>,
    skipped: usize,
    /// `true` if the program ended with success.
    succeeded: bool,
}

impl Tally {
    /// Returns `true` if at least one test ran and none failed.
    pub(crate) fn is_clean(&self) -> bool {
        self.succeeded && self.failed.is_empty() && self.passed > 0
    }

    /// Parses a line of the suite, and returns it if it is the result of a whole test, not of a subtest.
    fn take<'a>(&mut self, function: &str, line: &'a str) -> Option<&'a str> {
        let result = line.trim_start_matches([MARK, ' ']).strip_prefix("--- ")?;
        let (outcome, rest) = result.split_once(": ")?;
        let name = rest.strip_prefix(function)?.strip_prefix('/')?.split(' ').next()?;
        if name.contains('/') {
            return None;
        }
        match outcome {
            "PASS" => self.passed += 1,
            "FAIL" => self.failed.push(name.to_owned()),
            _ => self.skipped += 1,
        }
        // Tests of features that the class does not claim are skipped, and there are many.
        (outcome != "SKIP").then_some(result)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed.len(), self.skipped)?;
        for name in &self.failed {
            write!(f, "\n  {name}")?;
        }
        Ok(())
    }
}

impl Suite {
    /// Runs one of the program's test functions to its end.
    pub(crate) async fn run(&self, function: &str, arguments: &[String]) -> Tally {
        let log = self.folder.join("suite.log");
        let mut file = File::create(&log).expect("a log");
        let mut command = Command::new(&self.program);
        command.args([&format!("-test.run=^{function}$"), VERBOSE, TIMEOUT]).args(arguments);
        command.env("KUBECONFIG", &self.kubeconfig).current_dir(&self.folder);
        let errors = file.try_clone().expect("a log");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).kill_on_drop(true);
        let mut child = command.spawn().expect("the suite");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut tally = Tally::default();
        while let Some(line) = lines.next_line().await.expect("text") {
            writeln!(file, "{line}").expect("a log");
            if let Some(result) = tally.take(function, &line) {
                println!("{result}");
            }
        }
        tally.succeeded = child.wait().await.expect("a status").success();
        println!("{tally}");
        tally
    }
}
