//! The served cache against an oracle of the API's rules for resourceVersions, lists and watches
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>): random changes upstream, and
//! after each a few random requests, for which the oracle computes the whole answer.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod asked;
mod upstream;

use std::collections::BTreeMap;

use bytes::Bytes;
use fastrand::Rng;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tidegate_lite::{Lite, LiteService, WatchCacheKind, WatchCacheLimits};
use tower::Service as _;

use asked::Asked;
use upstream::change;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// The number of changes of one seed: fewer than a history keeps, however old they are.
const STEPS: usize = 90;
/// The number of objects that a list may remove without confirmation, whatever their share.
const FREE: usize = 2;

/// Each object's version, and `true` if its label is `odd=true`.
type State = BTreeMap<&'static str, (u64, bool)>;

struct Event {
    version: u64,
    name: &'static str,
    /// The label before and after; `None` if the object did not exist.
    before: Option<bool>,
    after: Option<bool>,
}

/// The served state with its history, and the state of the upstream server.
#[derive(Default)]
struct Oracle {
    version: u64,
    /// The objects upstream, and the version there. They differ from the served ones by changes that no watch reported,
    /// and by all changes since a list that is in doubt.
    real: State,
    real_version: u64,
    /// Whether the last list lacked most objects, so that another one has to confirm it.
    unconfirmed: bool,
    /// The state at each version at which it changed, the first one at the beginning of the history.
    states: BTreeMap<u64, State>,
    events: Vec<Event>,
    /// Versions up to this one, after `version`, are from before the restore of the upstream server.
    void: u64,
}

impl Oracle {
    fn now(&self) -> State {
        self.states.values().next_back().cloned().unwrap_or_default()
    }

    fn base(&self) -> u64 {
        *self.states.keys().next().unwrap()
    }

    /// The state at a version, if the history reaches back so far.
    fn at(&self, version: u64) -> Option<&State> {
        self.states.range(..=version).next_back().map(|(_, state)| state)
    }

    /// A change upstream.
    fn real_change(&mut self, version: u64, name: &'static str, after: Option<bool>) {
        match after {
            Some(odd) => drop(self.real.insert(name, (version, odd))),
            None => drop(self.real.remove(name)),
        }
        self.real_version = version;
    }

    /// A change of the served objects.
    fn change(&mut self, version: u64, name: &'static str, after: Option<bool>) {
        let mut state = self.now();
        let before = match after {
            Some(odd) => state.insert(name, (version, odd)),
            None => state.remove(name),
        };
        self.events.push(Event { version, name, before: before.map(|(_, odd)| odd), after });
        self.states.insert(version, state);
        self.version = version;
    }
}

fn object(name: &str, version: u64, odd: bool) -> Value {
    let labels = json!({"odd": odd.to_string()});
    let metadata = json!({"name": name, "namespace": "shop", "resourceVersion": version.to_string(), "labels": labels});
    json!({"kind": "Service", "apiVersion": "v1", "metadata": metadata})
}

fn raw(name: &str, version: u64, odd: bool) -> Vec<u8> {
    object(name, version, odd).to_string().into_bytes()
}

async fn answered(service: &mut LiteService, uri: &str) -> (u16, String) {
    let request = Request::get(uri).body(Full::<Bytes>::default()).unwrap();
    let answer = service.call(request).await.unwrap();
    let code = answer.status().as_u16();
    (code, String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

/// A frame of a watch as the oracle writes it.
fn frame(line: &str) -> Value {
    let frame: Value = serde_json::from_str(line).unwrap();
    let object = &frame["object"];
    match frame["type"].as_str().unwrap() {
        "ERROR" => json!({"ERROR": object["code"]}),
        "BOOKMARK" => {
            let ends = object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
            json!({"BOOKMARK": object["metadata"]["resourceVersion"], "ends": ends})
        }
        what => json!({what: object}),
    }
}

async fn play(seed: u64) {
    let limits =
        WatchCacheLimits { bytes_max: 1 << 24, unconfirmed_removals_share: 0.5, unconfirmed_removals_count: FREE };
    let [version, plural, kind] = ["v1", "services", "Service"].map(str::to_owned);
    let kind = WatchCacheKind {
        group: String::new(),
        version,
        plural,
        kind,
        namespaced: true,
        forwards_writes: false,
        short: Vec::new(),
    };
    let (lite, feeds) = Lite::watch_cache(&[kind], limits);
    let (feed, mut service) = (feeds.into_values().next().unwrap(), lite.service());
    let (mut oracle, mut rng) = (Oracle::default(), Rng::with_seed(seed));
    feed.list_begins();
    feed.list_done("50", true, true);
    (oracle.version, oracle.real_version) = (50, 50);
    oracle.states.insert(50, State::new());
    let mut tokens = Vec::new();
    for step in 0..STEPS {
        if oracle.events.len() < STEPS {
            change(&feed, &mut oracle, &mut rng);
        }
        let asked = Asked::draw(&oracle, &tokens, &mut rng);
        let (code, body) = answered(&mut service, &asked.uri()).await;
        let context = format!("seed {seed}, step {step}, at {}: {}\n{body}", oracle.version, asked.uri());
        if asked.watch {
            let got = if code == 200 { Ok(body.lines().map(frame).collect::<Vec<_>>()) } else { Err(code) };
            assert_eq!(got, asked.events(&oracle), "{context}");
            continue;
        }
        let list: Value = serde_json::from_str(&body).unwrap();
        let (metadata, items) = (&list["metadata"], &list["items"]);
        let got = json!({"version": metadata["resourceVersion"], "items": items, "goes_on": metadata["continue"].is_string(),
            "remaining": asked.comparable(metadata["remainingItemCount"].clone())});
        assert_eq!(if code == 200 { Ok(got) } else { Err(code) }, asked.list(&oracle), "{context}");
        if let Some(token) = metadata["continue"].as_str() {
            let version = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
            let last = items.as_array().unwrap().last().unwrap()["metadata"]["name"].as_str().unwrap();
            tokens.push((version, *NAMES.iter().find(|name| **name == last).unwrap(), token.to_owned()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_read_matches_the_model() {
    for seed in 0..150 {
        play(seed).await;
    }
}
