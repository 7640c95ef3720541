//! The work of a write grows with its lists, and not with the pairs of their elements. One test, so that nothing else
//! of this process works at the same time.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cases;
mod custom;
mod schemas;
mod work;

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Duration;

use tidegate_lite::Lite;

use self::work::{Call, FACTOR, LONG, excess, spent};

#[tokio::test]
#[ignore = "it measures time, which other work on the machine distorts; .ci/full runs it alone"]
async fn lists_take_linear_work() {
    assert!(excess(LONG, pairs).await.is_some(), "the measure sees a comparison of all pairs");
    let mut faults = Vec::new();
    for case in cases::all().into_iter().chain(custom::all()) {
        let run = async |length: usize| {
            let service = Lite::new().service();
            for call in (case.before)(length) {
                let (code, body) = call.send(&service).await;
                assert!(code < 300, "{}: {} {}: {}", case.name, call.method, call.path, text(&body));
            }
            let call = (case.measured)(length);
            let before = spent();
            let (code, body) = call.send(&service).await;
            let took = spent() - before;
            assert_eq!(code, case.code, "{}: {}", case.name, text(&body));
            took
        };
        faults.extend(excess(LONG, run).await.map(|times| (case.name.to_owned(), LONG, times)));
    }
    let service = Lite::new().service();
    let lists = schemas::all(&service).await;
    let kinds: BTreeSet<&str> = lists.iter().map(|list| list.path.as_str()).collect();
    assert!(lists.len() > 150 && kinds.len() > 20, "{} lists of {} kinds", lists.len(), kinds.len());
    for list in &lists {
        let run = async |length: usize| {
            let call = Call::new("POST", &format!("{}?dryRun=All", list.path), &list.object(length));
            let before = spent();
            call.send(&service).await;
            spent() - before
        };
        let long = list.longest();
        faults.extend(excess(long, run).await.map(|times| (list.name.clone(), long, times)));
    }
    assert!(faults.is_empty(), "lists, their lengths, and the work for a {FACTOR}th of it and for all: {faults:#?}");
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned()
}

/// Compares all pairs of texts.
async fn pairs(length: usize) -> Duration {
    let texts: Vec<String> = (0..length).map(|nth| format!("x{nth}")).collect();
    let before = spent();
    let pairs = texts.iter().map(|one| texts.iter().filter(|other| *other == black_box(one)).count());
    assert_eq!(pairs.sum::<usize>(), length);
    spent() - before
}
