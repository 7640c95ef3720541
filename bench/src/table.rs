//! The output of commands: a description of the machine, and tables in Markdown; or all of it as JSON.

use std::path::{Path, PathBuf};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::cores::Cores;
use crate::peer::{Choice, Kind, versions};
use crate::place::machine;
use crate::size::Size;
use crate::spread::Spread;

/// The output options of a run.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub(crate) struct Output {
    /// Prints JSON; with a file, writes it there and prints the tables too.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = STANDARD_OUTPUT)]
    json: Option<PathBuf>,
}

/// The value for no file.
const STANDARD_OUTPUT: &str = "-";

impl Output {
    /// Reports the results of a run; `print` prints its tables.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn tell<R: Serialize + ?Sized>(&self, report: &R, print: impl FnOnce(&R)) -> anyhow::Result<()> {
        match self.json.as_deref() {
            None => print(report),
            Some(file) if file == Path::new(STANDARD_OUTPUT) => println!("{}", serde_json::to_string_pretty(report)?),
            Some(file) => {
                std::fs::write(file, serde_json::to_string_pretty(report)?)?;
                print(report);
            }
        }
        Ok(())
    }
}

/// The machine of a run, and its participants.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Setup {
    machine: String,
    cores: Option<String>,
    pub(crate) versions: Vec<String>,
    pub(crate) left_out: Vec<String>,
    /// Peers that could not be measured, and the reasons.
    not_measured: Vec<String>,
}

impl Setup {
    /// For these proxies on this machine.
    pub(crate) fn new(choices: &[Choice], left_out: Vec<String>) -> Self {
        Self { machine: machine(), cores: None, versions: versions(choices), left_out, not_measured: Vec::new() }
    }

    /// Adds the cores.
    pub(crate) fn on(&mut self, cores: &Cores) {
        self.cores = Some(cores.describe());
    }

    /// Notes that a proxy could not be measured with this number of routes: for a peer, that is a finding.
    ///
    /// # Errors
    /// The error itself, if it is Tidegate, and at smoke size.
    pub(crate) fn miss(
        &mut self,
        size: Size,
        choice: &Choice,
        routes: usize,
        why: anyhow::Error,
    ) -> anyhow::Result<()> {
        let what = format!("{} with {routes} routes", choice.name());
        if size == Size::Smoke || choice.kind == Kind::Tidegate {
            return Err(why.context(what));
        }
        self.not_measured.push(format!("{what}: {why:#}"));
        Ok(())
    }

    pub(crate) fn print(&self) {
        println!("Machine: {}", self.machine);
        if let Some(cores) = &self.cores {
            println!("Cores: {cores}");
        }
        println!("Versions: {}", self.versions.join("; "));
        for left_out in &self.left_out {
            println!("Left out: {left_out}");
        }
        for not_measured in &self.not_measured {
            println!("Not measured: {not_measured}");
        }
    }
}

/// A table whose columns are figures, except for this number in front.
pub(crate) fn table(
    names: usize,
    header: impl IntoIterator<Item = &'static str>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header.into_iter().collect::<Vec<_>>()).add_rows(rows);
    for column in table.column_iter_mut().skip(names) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A figure, if there is one.
pub(crate) fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

/// The median of some figures, and their least and greatest if they differ.
pub(crate) fn spread(digits: usize, figures: impl IntoIterator<Item = f64>) -> String {
    match Spread::of(figures) {
        None => figure(None, digits),
        Some(Spread { least, median, greatest }) if least.total_cmp(&greatest).is_eq() => figure(Some(median), digits),
        Some(Spread { least, median, greatest }) => {
            format!("{median:.digits$} ({least:.digits$}–{greatest:.digits$})")
        }
    }
}
