//! Plays the corpus on both sides and compares.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_proxy::{Driver, Options};
use tokio::sync::Semaphore;

use super::case::Case;
use super::compare::differences;
use super::corpus::{self, SEED};
use super::http2;
use super::side::{Outcome, Over, Side};

/// Pairs of data planes that play cases at the same time.
const PAIRS: usize = 12;

/// The silence after which a client assumes that no more bytes will arrive; longer for a case that differed at first.
pub const QUIET: [Duration; 3] = [Duration::from_millis(250), Duration::from_millis(500), Duration::from_millis(1000)];

/// The number of repetitions of a case that differed only sometimes. One more difference is tolerated, two are not.
const ALONE: usize = 5;

/// Runs one test at a time, so that less load disturbs the timing.
pub static TURN: Semaphore = Semaphore::const_new(1);

/// The totals of the whole corpus.
#[derive(Default)]
struct Tally {
    cases: usize,
    /// Cases with a request that the native driver took.
    native: usize,
    wavering: Vec<Wavering>,
    complaints: Vec<Complaint>,
}

/// A case that differed once and then did not.
struct Wavering {
    number: usize,
    case: Case,
    found: String,
}

/// The result of a single run of a case.
struct Look {
    /// Its requests that the native driver took.
    taken: u64,
    complaint: Option<Complaint>,
}

/// A case that differs.
struct Complaint {
    case: String,
    found: Vec<String>,
    text: String,
}

struct Pair {
    one: Side,
    other: Side,
}

impl Pair {
    async fn play(&mut self, case: &Case, quiet: Duration) -> [Outcome; 2] {
        let (one, other) = tokio::join!(self.one.play(case, quiet), self.other.play(case, quiet));
        [one, other]
    }

    /// Only a repeated difference counts: the machine may be slow.
    async fn check(&mut self, number: usize, case: &Case, tally: &mut Tally) {
        tally.cases += 1;
        let mut first = None;
        for quiet in QUIET {
            let look = self.look(number, case, quiet).await;
            tally.native += usize::from(first.is_none() && look.taken > 0);
            let Some(complaint) = look.complaint else {
                tally.wavering.extend(first.map(|found| Wavering { number, case: case.clone(), found }));
                return;
            };
            first.get_or_insert(complaint.found.join("; "));
            if quiet == QUIET[QUIET.len() - 1] {
                tally.complaints.push(complaint);
            }
        }
    }

    /// Plays a case on both sides, once.
    async fn look(&mut self, number: usize, case: &Case, quiet: Duration) -> Look {
        let [one, other] = self.play(case, quiet).await;
        let taken = taken(&one);
        let mut found = differences(case, &one, &other);
        if case.native && taken == 0 && other.full > 0 {
            found.push("the native driver did not take it".to_owned());
        }
        if found.is_empty() {
            return Look { taken, complaint: None };
        }
        let text = format!(
            "case {number} of seed {SEED}: {case:?}  {}\n  one ({} native, {} full): {:#?}\n  other: {:#?}\n",
            found.join("\n  "),
            one.native,
            one.full,
            (&one.upstream, &one.client, one.rest.escape_ascii().to_string()),
            (&other.upstream, &other.client, other.rest.escape_ascii().to_string()),
        );
        Look { taken, complaint: Some(Complaint { case: format!("{number}, {}", case.name), found, text }) }
    }
}

/// Requests of the case itself that the native driver took.
fn taken(outcome: &Outcome) -> u64 {
    let probed = outcome.upstream.iter().any(|message| message.start == b"GET /probe HTTP/1.1");
    outcome.native.saturating_sub(u64::from(probed))
}

/// A change of a side's options.
type Set = fn(&mut Options);

async fn play(cases: Vec<(usize, Case)>, over: Over, one: Set, other: Set) -> Tally {
    let cases = Arc::new(cases);
    let next = Arc::new(AtomicUsize::new(0));
    let pairs = (0..PAIRS.min(cases.len())).map(|_| {
        let (cases, next) = (Arc::clone(&cases), Arc::clone(&next));
        tokio::spawn(async move {
            let mut pair = Pair { one: Side::start(over, one).await, other: Side::start(over, other).await };
            let mut tally = Tally::default();
            while let Some((number, case)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                pair.check(*number, case, &mut tally).await;
            }
            tally
        })
    });
    let mut all = Tally::default();
    for pair in pairs.collect::<Vec<_>>() {
        let tally = pair.await.unwrap();
        all.cases += tally.cases;
        all.native += tally.native;
        all.wavering.extend(tally.wavering);
        all.complaints.extend(tally.complaints);
    }
    all
}

/// Plays the unsteady cases again, one at a time and each several times. A race between the drivers shows again; an
/// effect of the load of parallel cases does not.
async fn alone(wavering: &[Wavering], over: Over, one: Set, other: Set) -> Vec<Complaint> {
    let mut pair = Pair { one: Side::start(over, one).await, other: Side::start(over, other).await };
    let mut complaints = Vec::new();
    for Wavering { number, case, found } in wavering {
        let mut again = Vec::new();
        for _ in 0..ALONE {
            again.extend(pair.look(*number, case, QUIET[QUIET.len() - 1]).await.complaint);
        }
        println!("wavering: case {number}, {}: {found}; alone {} of {ALONE} times", case.name, again.len());
        complaints.extend(again.pop().filter(|_| !again.is_empty()));
    }
    complaints
}

fn full(options: &mut Options) {
    options.driver = Driver::Pingora;
}

/// The cases with the number or name of the environment variable; all cases without it.
#[allow(clippy::disallowed_methods, reason = "to play one case alone is asked of the environment")]
fn chosen(cases: Vec<(usize, Case)>) -> Vec<(usize, Case)> {
    let Ok(wanted) = std::env::var("DRIVERS_CASE") else { return cases };
    cases.into_iter().filter(|(number, case)| number.to_string() == wanted || case.name.contains(&wanted)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_drivers_do_the_same() {
    let cases = corpus::all();
    assert!(cases.len() >= 2000, "{} cases", cases.len());
    check(cases.into_iter().enumerate().collect(), Over::Tcp).await;
}

/// The bytes are the same, but are sent and received in other pieces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_drivers_do_the_same_over_tls() {
    check(corpus::all().into_iter().enumerate().step_by(7).collect(), Over::Tls).await;
}

/// Cases over HTTP/2, as far as they can be expressed in frames.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_drivers_do_the_same_over_http2() {
    let mut cases: Vec<_> = corpus::all().into_iter().enumerate().collect();
    cases.retain(|(_, case)| !http2::requests(case).is_empty());
    assert!(cases.len() >= 2000, "{} cases", cases.len());
    check(cases, Over::Http2).await;
}

/// Each driver has a TLS client of its own for endpoints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_drivers_do_the_same_with_https_endpoints() {
    let cases: Vec<_> = corpus::all().into_iter().enumerate().skip(3).step_by(7).collect();
    check(cases.clone(), Over::TlsEndpoint).await;
    let in_frames = cases.into_iter().filter(|(_, case)| !http2::requests(case).is_empty());
    check(in_frames.step_by(2).collect(), Over::Http2TlsEndpoint).await;
}

async fn check(cases: Vec<(usize, Case)>, over: Over) {
    let _turn = TURN.acquire().await.unwrap();
    let all = cases.len();
    let mut tally = play(chosen(cases), over, |_| (), full).await;
    println!("{} cases, {} native, {} wavering", tally.cases, tally.native, tally.wavering.len());
    tally.complaints.extend(alone(&tally.wavering, over, |_| (), full).await);
    let shown = tally.complaints.iter().take(20).map(|complaint| complaint.text.as_str()).collect::<String>();
    let count = tally.complaints.len();
    assert!(tally.complaints.is_empty(), "{shown}\n{}\n{count} cases differ", overview(&tally.complaints));
    if tally.cases == all {
        assert!(tally.native * 2 > all, "the native driver took only {} of {all}", tally.native);
        assert!(tally.wavering.len() * 20 <= all, "more than one in twenty cases wavers");
    }
}

/// The differences, their number, and the first case of each.
fn overview(complaints: &[Complaint]) -> String {
    let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for complaint in complaints {
        for found in &complaint.found {
            kinds.entry(found).or_default().push(&complaint.case);
        }
    }
    kinds
        .iter()
        .fold(String::new(), |all, (found, cases)| format!("{all}{} x {found}: case {}\n", cases.len(), cases[0]))
}

/// Each of these is a difference that a mistake could cause; it must be detected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_differences_are_found() {
    let _turn = TURN.acquire().await.unwrap();
    let named = |case: &Case, name: &str| case.name.contains(name) && !case.name.contains("mutation");
    let some = |name: &str| {
        let numbered = corpus::all().into_iter().enumerate();
        numbered.filter(|(_, case)| named(case, name)).take(2).collect::<Vec<_>>()
    };
    let planted: [(&str, Set); 4] = [
        ("kept-request-id", |options| options.keep_request_id = false),
        ("GET of /a/b?c=d", |options| options.loop_token = "other".parse().unwrap()),
        ("127 lines", |options| options.client.head_lines_max = 100),
        ("passed 2 times", |options| options.passes_max = 2),
    ];
    for (name, plant) in planted {
        let cases = some(name);
        assert!(!cases.is_empty(), "no case is named {name}");
        let all = cases.len();
        let tally = play(cases, Over::Tcp, full, plant).await;
        assert_eq!(tally.complaints.len(), all, "{name}: {} waver", tally.wavering.len());
    }
}
