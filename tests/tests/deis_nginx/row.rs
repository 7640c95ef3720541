//! One row of a table: a request, and the expected result of the comparison.

use crate::answer::Answer;
use crate::ask::Ask;
use crate::pair::Pair;

/// The documentation of the differences.
const GUIDE: &str = include_str!("../../../docs/migrate-from-deis.md");

/// The expected result.
#[derive(Debug)]
enum Want {
    /// Both respond alike, with this status and, among others, these lines.
    Same(u16, &'static [&'static str]),
    /// Neither responds.
    None,
    /// They differ, as documented in this part of the migration guide, in these lines, each of which begins with its
    /// side.
    Differs(&'static str, &'static [&'static str]),
}

/// A request and the expected result of its responses.
#[derive(Debug)]
pub(crate) struct Row {
    what: &'static str,
    ask: Ask,
    want: Want,
    on_top: bool,
}

/// Both sides respond alike, with this status and, among others, these lines.
pub(crate) fn same(what: &'static str, ask: Ask, status: u16, lines: &'static [&'static str]) -> Row {
    Row { what, ask, want: Want::Same(status, lines), on_top: false }
}

/// Neither side responds.
pub(crate) fn none(what: &'static str, ask: Ask) -> Row {
    Row { what, ask, want: Want::None, on_top: false }
}

/// Both sides differ on purpose, as documented in this part of the migration guide's table, and in nothing but these
/// lines, which begin with `nginx` or `tidegate`.
pub(crate) fn differs(what: &'static str, ask: Ask, guide: &'static str, lines: &'static [&'static str]) -> Row {
    Row { what, ask, want: Want::Differs(guide, lines), on_top: false }
}

impl Row {
    /// Compares the headers as well that Tidegate sends to every endpoint in addition.
    pub(crate) fn with_headers_on_top(self) -> Self {
        Self { on_top: true, ..self }
    }
}

/// Sends every request to both sides, and fails with all rows that do not match.
#[track_caller]
pub(crate) fn check(pair: &Pair, rows: Vec<Row>) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let mut failures = Vec::new();
        let count = rows.len();
        for row in rows {
            if let Err(complaint) = checked(pair, &row).await {
                failures.push(format!("{}: {complaint}", row.what));
            }
        }
        assert!(failures.is_empty(), "{caller}: {} of {count} rows\n\n{}", failures.len(), failures.join("\n\n"));
        println!("{count} rows");
    }
}

async fn checked(pair: &Pair, row: &Row) -> Result<(), String> {
    let (nginx, tidegate) = (row.ask.of(pair.nginx()), row.ask.of(pair.tidegate()));
    let (nginx, tidegate) = tokio::join!(nginx, tidegate);
    let lines = |answer: Result<Answer, String>| match answer {
        Ok(answer) => answer.lines(&row.ask, &pair.world, row.on_top),
        Err(why) => vec![why],
    };
    let (nginx, tidegate) = (lines(nginx), lines(tidegate));
    let difference = difference(&nginx, &tidegate);
    let told = || format!("\n  nginx:    {nginx:?}\n  tidegate: {tidegate:?}");
    match row.want {
        Want::None if nginx != [crate::ask::NO_ANSWER] => Err(format!("nginx answers{}", told())),
        Want::Same(..) | Want::None if !difference.is_empty() => {
            let answers = told();
            Err(format!("they differ: {difference:#?}{answers}"))
        }
        Want::Same(status, wanted) => {
            let status = format!("status: {status}");
            let missing = std::iter::once(status.as_str()).chain(wanted.iter().copied());
            let missing: Vec<&str> = missing.filter(|line| !tidegate.iter().any(|is| is == line)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("both lack {missing:?}{}", told())) }
        }
        Want::Differs(guide, _) if !GUIDE.contains(guide) => Err(format!("the migration guide does not say {guide:?}")),
        Want::Differs(guide, wanted) if difference.is_empty() || difference != wanted => {
            let answers = told();
            Err(format!("{guide}: they differ in\n{difference:#?}\n  and not in\n{wanted:#?}{answers}"))
        }
        Want::None | Want::Differs(..) => Ok(()),
    }
}

/// Returns `true` for lines that follow from the status, which are not listed again if statuses differ.
fn follows(line: &str) -> bool {
    !["status", "location", "certificate", "page"].contains(&line.split(':').next().unwrap_or_default())
}

/// The lines that one side alone has, in order, each with its side.
fn difference(nginx: &[String], tidegate: &[String]) -> Vec<String> {
    let one_status = nginx.first() == tidegate.first();
    // A line that one side has twice has to be twice on the other.
    let only = |these: &[String], those: &[String], side: &str| {
        let mut left = those.to_vec();
        let mut only = Vec::new();
        for line in these {
            match left.iter().position(|other| other == line) {
                Some(place) => drop(left.swap_remove(place)),
                None if !one_status && follows(line) => {}
                None => only.push(format!("{side} {line}")),
            }
        }
        only
    };
    [only(nginx, tidegate, "nginx"), only(tidegate, nginx, "tidegate")].concat()
}
