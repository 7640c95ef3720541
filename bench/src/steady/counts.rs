//! The cost of one request in counts. A load over one connection is counted, then one of many more requests; the
//! difference, divided by the number of additional requests, is the cost of a request. The cost of connections and
//! start-ups is in both.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Serialize;

use super::{Args, BARE, NO_LOG, Report};
use crate::callgrind;
use crate::cores::Share;
use crate::limits::Limits;
use crate::load::{Amount, Case, h2load};
use crate::peer::{self, Choice, Kind, Route, SECURE, Source, Target, Work};
use crate::place::family;
use crate::progress::Progress;
use crate::size::Size;
use crate::strace::{self, Calls, Strace};
use crate::subject::Running;
use crate::upstream::Upstream;

/// The subjects that are counted by themselves, in a process of this binary.
const SUBJECTS: [Subject; 4] = [
    Subject { name: BARE, words: &["pingora"], driver: None },
    Subject { name: NATIVE_SUBJECT, words: &["edge", "--access-log", "/dev/null"], driver: Some(Driver::Native) },
    Subject { name: NO_LOG, words: &["edge"], driver: Some(Driver::Native) },
    Subject {
        name: "tidegate, Pingora driver",
        words: &["edge", "--access-log", "/dev/null", "--pingora-driver"],
        driver: Some(Driver::Pingora),
    },
];
/// The subject that is deployed.
const NATIVE_SUBJECT: &str = "tidegate";
/// The subjects whose instructions are counted at smoke size too, for the first case.
const UNDER_CALLGRIND: [&str; 3] = ["nginx", NATIVE_SUBJECT, "tidegate, Pingora driver"];
/// The most instructions of a request over HTTP/2, as a multiple of those of one over HTTP/1.1. Far more are a sign of
/// a large future that is copied again and again.
const HTTP2_MOST: f64 = 4.0;
/// The cases: kept HTTP/1.1, with a body, over a connection for each, over TLS, and HTTP/2.
const CASES: [&str; 5] = ["h1-small", "h1-post-small", "h1-close-small", "tls-small", HTTP2_CASE];
/// The case over HTTP/2.
const HTTP2_CASE: &str = "h2-small";
/// The number of requests of the smaller load.
const FEW: usize = 100;

/// A data plane alone.
#[derive(Debug)]
struct Subject {
    name: &'static str,
    words: &'static [&'static str],
    /// The driver, for Tidegate.
    driver: Option<Driver>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Driver {
    Native,
    Pingora,
}

impl Subject {
    /// Its command line. A bare Pingora knows no objects.
    fn words(&self, source: Source, limits: Limits) -> Vec<String> {
        let source: &[&str] = if source == Source::Gateway { &["--source", "gateway"] } else { &[] };
        let limits = (!limits.is_none()).then(|| limits.as_written());
        let limits = limits.iter().flat_map(|limits| ["--limits", limits]);
        let more = self.driver.map(|_| source.iter().copied().chain(limits)).into_iter().flatten();
        self.words.iter().copied().chain(more).map(str::to_owned).collect()
    }
}

/// The limits on the cost of a request.
#[derive(Clone, Copy, Debug)]
struct Most {
    /// `true` if the limit is on allocations beyond those of a bare Pingora, and not on all.
    beyond_bare: bool,
    allocations: f64,
    syscalls: f64,
}

/// None, except for those that come with time and not with requests.
const NATIVE: Most = Most { beyond_bare: false, allocations: 0.1, syscalls: 7.0 };
/// A connection has some allocations, for its task, its metrics and the list of connections that may be evicted; it is
/// accepted, watched, awaited and closed, with one more wait if its client is slow to close it.
const NATIVE_CLOSE: Most = Most { allocations: 9.5, syscalls: 17.0, ..NATIVE };
/// rustls allocates once per incoming record and once per outgoing record.
const NATIVE_TLS: Most = Most { allocations: 2.1, ..NATIVE };
/// Over HTTP/2, streams, tasks and heads are allocated by h2 and Pingora.
const NATIVE_HTTP2: Most = Most { allocations: 17.5, ..NATIVE };
/// Beyond those of a bare Pingora: the decision about the request, its edits as headers of Pingora's maps, its record
/// in the log, and the boxes of the driver's asynchronous functions.
const PINGORA_DRIVER: Most = Most { beyond_bare: true, allocations: 36.0, syscalls: 9.0 };
const PINGORA_DRIVER_CLOSE: Most = Most { syscalls: 18.0, ..PINGORA_DRIVER };

impl Driver {
    const fn most(self, case: &Case) -> Most {
        match self {
            Self::Native if case.http2() => NATIVE_HTTP2,
            Self::Native if case.tls() => NATIVE_TLS,
            Self::Native if case.closes() => NATIVE_CLOSE,
            Self::Native => NATIVE,
            Self::Pingora if case.closes() => PINGORA_DRIVER_CLOSE,
            Self::Pingora => PINGORA_DRIVER,
        }
    }
}

/// The cost of a request; `None` for counts that were not made.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) subject: String,
    pub(super) limits: Limits,
    pub(super) case: &'static str,
    /// Calls of the allocator, and the requested bytes, on any thread.
    pub(super) allocations: Option<f64>,
    pub(super) bytes: Option<f64>,
    /// System calls of all threads and processes.
    pub(super) syscalls: Option<f64>,
    pub(super) calls: BTreeMap<String, f64>,
    /// Instructions in user mode.
    pub(super) instructions: Option<f64>,
}

/// The available tools.
#[derive(Clone, Copy, Debug)]
struct Tools {
    strace: bool,
    callgrind: bool,
    source: Source,
    /// The number of requests of the larger load.
    many: usize,
    /// `true` if only the limits are checked, with a minimum of other counts to show that they still work.
    briefly: bool,
}

/// Makes every count that is possible here.
///
/// # Errors
/// When a count fails that the tools here could make.
pub(super) async fn measure(args: &Args, choices: &[Choice], report: &mut Report) -> anyhow::Result<()> {
    let (strace, callgrind, briefly) = (strace::available(), callgrind::available(), args.size == Size::Smoke);
    let left_out = &mut report.setup.left_out;
    for (available, what) in [(strace, "system calls: strace"), (callgrind, "instructions: valgrind")] {
        left_out.extend((!available).then(|| format!("{what} is not installed (bench/setup installs it)")));
    }
    args.size.complete(left_out)?;
    // If the kernel forbids tracing, installing the tool does not help.
    let refused = if strace { strace::refused().await } else { None };
    let strace = strace && refused.is_none();
    left_out.extend(refused.map(|why| format!("system calls: {why}")));
    let many = FEW + args.count_requests.max(1);
    let tools = Tools { strace, callgrind, source: args.peers.source(), many, briefly };
    let upstream = &Upstream::start(Share::ANY).await?;
    let asked = |name: &&str| args.cases.is_empty() || args.cases.iter().any(|asked| asked == name);
    let cases: Vec<Case> = CASES.into_iter().filter(asked).filter_map(Case::named).collect();
    ensure!(!cases.is_empty(), "the counted cases are {}", CASES.join(", "));
    let peers: Vec<&Choice> = choices.iter().filter(|choice| choice.kind != Kind::Tidegate).collect();
    let subjects: Vec<(&Subject, Limits)> = args
        .peers
        .limits()
        .iter()
        .flat_map(|limits| SUBJECTS.iter().map(move |subject| (subject, *limits)))
        .filter(|(subject, limits)| limits.is_none() || subject.driver.is_some())
        .collect();
    let progress = Progress::new(cases.len() * (subjects.len() + peers.len()));
    for case in &cases {
        for choice in peers.iter().filter(|_| !tools.briefly || case.name == CASES[0]) {
            progress.say(format!("counts: {}, {}", case.name, choice.name()));
            report.counts.extend(of_peer(choice, case, args, tools, upstream).await?);
        }
        for (subject, limits) in &subjects {
            progress.say(format!("counts: {}, {}", case.name, limits.named(subject.name)));
            report.counts.push(of_subject(subject, *limits, case, tools, upstream).await?);
        }
    }
    progress.finish();
    Ok(())
}

/// Checks that every count of the smoke size was made, and that no cost of Tidegate exceeds its limit.
///
/// # Errors
/// When either fails.
pub(super) fn check(rows: &[Row]) -> anyhow::Result<()> {
    if rows.iter().all(|row| row.syscalls.is_none()) {
        eprintln!("not judged: system calls, which may not be traced here");
    }
    let instructions = |subject: &str, case: &str| {
        let row = rows.iter().find(|row| row.subject == subject && row.limits.is_none() && row.case == case);
        row.and_then(|row| row.instructions)
    };
    let own = instructions(NATIVE_SUBJECT, CASES[0]);
    if let (Some(own), Some(nginx)) = (own, instructions(Kind::Nginx.name(), CASES[0])) {
        ensure!(own <= nginx, "{own:.0} instructions for a request, and {nginx:.0} of nginx's");
    }
    if let (Some(own), Some(http2)) = (own, instructions(NATIVE_SUBJECT, HTTP2_CASE)) {
        ensure!(http2 <= HTTP2_MOST * own, "{http2:.0} instructions for a request over HTTP/2, {own:.0} over HTTP/1.1");
    }
    for row in rows {
        ensure!(row.syscalls.is_none_or(|syscalls| syscalls > 0.0), "no system calls: {row:?}");
        ensure!(
            !is_always_counted(&row.subject, row.case) || row.instructions.is_some_and(|count| count > 0.0),
            "no instructions: {row:?}"
        );
        let Some(driver) = SUBJECTS.iter().find(|it| it.name == row.subject).and_then(|it| it.driver) else { continue };
        if !row.limits.allocate_nothing() {
            continue;
        }
        let most = driver.most(&Case::named(row.case).context("a case")?);
        let bare = rows.iter().find(|other| other.subject == BARE && other.case == row.case);
        let bare = bare.and_then(|bare| bare.allocations).context("no counts of a bare Pingora")?;
        let (allocations, most_allocations) =
            (row.allocations.context("not counted")?, most.allocations + if most.beyond_bare { bare } else { 0.0 });
        ensure!(
            allocations <= most_allocations,
            "{allocations:.1} allocations, at most {most_allocations:.1}: {row:?}"
        );
        if let Some(syscalls) = row.syscalls {
            ensure!(syscalls <= most.syscalls, "{syscalls:.1} system calls, at most {:.1}: {row:?}", most.syscalls);
        }
    }
    Ok(())
}

/// Returns `true` if the instructions are counted at smoke size too.
fn is_always_counted(subject: &str, case: &str) -> bool {
    (case == CASES[0] && UNDER_CALLGRIND.contains(&subject)) || (case == HTTP2_CASE && subject == NATIVE_SUBJECT)
}

async fn of_subject(
    subject: &Subject,
    limits: Limits,
    case: &Case,
    tools: Tools,
    upstream: &Upstream,
) -> anyhow::Result<Row> {
    let words = &subject.words(tools.source, limits);
    let mut running = Running::start(words, Share::ANY, upstream.http, &[]).await?;
    let (at, process) = ((running.plain, running.secure), running.process());
    let (mut few, mut many) = (0.0, 0.0);
    let (mut few_bytes, mut many_bytes) = (0.0, 0.0);
    ask(case, at, FEW).await?;
    for (requests, count, bytes) in [(FEW, &mut few, &mut few_bytes), (tools.many, &mut many, &mut many_bytes)] {
        let before = running.allocations().await?;
        ask(case, at, requests).await?;
        let after = running.allocations().await?;
        (*count, *bytes) = (float(after.count - before.count), float(after.bytes - before.bytes));
    }
    let calls = if tools.strace { syscalls(case, at, &[process], tools.many).await? } else { BTreeMap::new() };
    running.stop().await?;
    let instructions = if tools.callgrind && (!tools.briefly || is_always_counted(subject.name, case.name)) {
        let few = under_callgrind(words, case, FEW, upstream).await?;
        Some(each(few, under_callgrind(words, case, tools.many, upstream).await?, tools.many))
    } else {
        None
    };
    Ok(Row {
        subject: subject.name.to_owned(),
        limits,
        case: case.name,
        allocations: Some(each(few, many, tools.many)),
        bytes: Some(each(few_bytes, many_bytes, tools.many)),
        syscalls: tools.strace.then(|| calls.values().sum()),
        calls,
        instructions,
    })
}

/// The cost in other proxies: no allocations, and instructions of nginx alone, which can run as one process.
async fn of_peer(
    choice: &Choice,
    case: &Case,
    args: &Args,
    tools: Tools,
    upstream: &Upstream,
) -> anyhow::Result<Option<Row>> {
    let (one_worker, route) = (args.peers.with_workers(1), [Route::new(SECURE, Target::Own)]);
    let peer = choice.start(&one_worker, Share::ANY, upstream, &route).await?;
    let secure = peer.secure_address();
    let at = (peer.address(), secure);
    ask(case, at, FEW).await?;
    let processes = family(peer.process());
    let calls = if tools.strace { syscalls(case, at, &processes, tools.many).await? } else { BTreeMap::new() };
    drop(peer);
    let instructions = if tools.callgrind && choice.kind == Kind::Nginx {
        let few = nginx_under_callgrind(case, FEW, choice.work, upstream).await?;
        Some(each(few, nginx_under_callgrind(case, tools.many, choice.work, upstream).await?, tools.many))
    } else {
        None
    };
    Ok(Some(Row {
        subject: choice.name(),
        limits: Limits::default(),
        case: case.name,
        allocations: None,
        bytes: None,
        syscalls: tools.strace.then(|| calls.values().sum()),
        calls,
        instructions,
    }))
}

/// Sends this number of requests, over one connection, one after the other.
async fn ask(case: &Case, (plain, secure): (SocketAddr, SocketAddr), requests: usize) -> anyhow::Result<()> {
    let mut ask = case.ask(plain, secure);
    ask.streams = ask.streams.map(|_| 1);
    let load = h2load(&ask, Amount::Counted(requests), 1).await?;
    ensure!(load.failures() == 0, "requests failed: {load:?}");
    Ok(())
}

async fn syscalls(
    case: &Case,
    at: (SocketAddr, SocketAddr),
    processes: &[u32],
    many: usize,
) -> anyhow::Result<BTreeMap<String, f64>> {
    let few = traced(case, at, processes, FEW).await?;
    let of = |calls: &Calls, name: &str| float(calls.get(name).copied().unwrap_or_default());
    let more = traced(case, at, processes, many).await?;
    Ok(more.keys().map(|name| (name.clone(), each(of(&few, name), of(&more, name), many))).collect())
}

async fn traced(
    case: &Case,
    at: (SocketAddr, SocketAddr),
    processes: &[u32],
    requests: usize,
) -> anyhow::Result<Calls> {
    let strace = Strace::attach(processes).await?;
    ask(case, at, requests).await?;
    strace.detach().await
}

async fn under_callgrind(words: &[String], case: &Case, requests: usize, upstream: &Upstream) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("counts");
    let running = Running::start(words, Share::ANY, upstream.http, &valgrind(&out)).await?;
    ask(case, (running.plain, running.secure), requests).await?;
    running.stop().await?;
    Ok(float(callgrind::read(&out)?))
}

async fn nginx_under_callgrind(case: &Case, requests: usize, work: Work, upstream: &Upstream) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("counts");
    let mut nginx = peer::nginx_under(valgrind(&out), work, upstream).await?;
    ask(case, (nginx.address(), nginx.secure()), requests).await?;
    nginx.stop().await?;
    Ok(float(callgrind::read(&out)?))
}

fn valgrind(out: &Path) -> Vec<OsString> {
    let mut file = OsString::from("--callgrind-out-file=");
    file.push(out);
    vec!["valgrind".into(), "--tool=callgrind".into(), "--quiet".into(), file]
}

fn each(few: f64, many: f64, requests: usize) -> f64 {
    (many - few) / float(requests - FEW)
}

#[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn float(count: impl TryInto<u64>) -> f64 {
    count.try_into().map_or(f64::NAN, |count| count as f64)
}

#[cfg(test)]
mod tests;
