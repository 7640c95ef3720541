//! The served cache against an oracle of the API's rules for resourceVersions, lists and watches
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>): random changes upstream, and
//! after each a few random requests, for which the oracle computes the whole answer.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use fastrand::Rng;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tidegate_lite::{Feed, Lite, LiteService, ReplicaKind, ReplicaLimits};
use tower::Service as _;

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

/// The state that is served, and its history, beside the state of the upstream server.
#[derive(Default)]
struct Oracle {
    version: u64,
    /// The objects upstream, and the version there. They differ from the served ones by changes that no watch reported, and by all
    /// changes since a list that is in doubt.
    real: State,
    real_version: u64,
    /// Whether the last list lacked so much that another one has to confirm it.
    doubted: bool,
    /// The state at each version at which it changed, the first one at the beginning of the history.
    states: BTreeMap<u64, State>,
    events: Vec<Event>,
    /// Versions up to this one, after `version`, are from before the upstream server was set back.
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

    /// A change of what is served.
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

/// Plays a change upstream.
fn upstream(feed: &Feed, oracle: &mut Oracle, chance: &mut Rng) {
    match chance.u8(..12) {
        0 => {
            oracle.real_version += chance.u64(1..4);
            feed.reached(&oracle.real_version.to_string());
            if !oracle.doubted {
                oracle.version = oracle.real_version;
            }
        }
        1 => relist(feed, oracle, chance),
        2 => list_beside(feed, oracle, chance),
        3 if chance.u8(..3) == 0 => set_back(feed, oracle, chance),
        _ => {
            let (version, name, after) = draw(oracle, chance);
            tell(feed, oracle, (version, name, after));
        }
    }
}

/// A change of one object upstream.
type Drawn = (u64, &'static str, Option<bool>);

fn draw(oracle: &Oracle, chance: &mut Rng) -> Drawn {
    let (name, version) = (NAMES[chance.usize(..NAMES.len())], oracle.real_version + chance.u64(1..4));
    let goes = oracle.real.contains_key(name) && chance.u8(..3) == 0;
    (version, name, (!goes).then(|| chance.bool()))
}

/// A watch event of a change. What comes after a list in doubt is not served.
fn tell(feed: &Feed, oracle: &mut Oracle, (version, name, after): Drawn) {
    let last = after.or(oracle.real.get(name).map(|(_, odd)| *odd)).unwrap();
    feed.told("shop", name, &raw(name, version, last), after.is_none());
    oracle.real_change(version, name, after);
    if !oracle.doubted {
        oracle.change(version, name, after);
    }
}

/// A list after changes that no watch reported. In one of four, most objects are gone.
fn relist(feed: &Feed, oracle: &mut Oracle, chance: &mut Rng) {
    let most = chance.u8(..4) == 0;
    for name in NAMES {
        let version = oracle.real_version + 1;
        match chance.u8(..4) {
            0 if oracle.real.contains_key(name) => oracle.real_change(version, name, None),
            1 if most && oracle.real.contains_key(name) => oracle.real_change(version, name, None),
            1 => oracle.real_change(version + chance.u64(..3), name, Some(chance.bool())),
            _ => {}
        }
    }
    oracle.real_version += chance.u64(1..4);
    feed.list_begins();
    for (name, (version, odd)) in &oracle.real {
        feed.listed("shop", name, &raw(name, *version, *odd));
    }
    let reached = oracle.real_version;
    feed.list_done(&reached.to_string(), true, true);
    listed(oracle, reached);
}

/// A list beside a watch. The list is of the moment in which it began, and the watch goes on to report changes; or the list is of a later
/// moment, and the watch has reported the first of the changes that it contains.
fn list_beside(feed: &Feed, oracle: &mut Oracle, chance: &mut Rng) {
    let later = chance.bool();
    let now = oracle.real.clone();
    let changes = chance.usize(1..4);
    let reported = if later { chance.usize(..changes) } else { changes };
    feed.list_begins();
    let halves = if later { None } else { Some(now) };
    if let Some(now) = &halves {
        for (name, (version, odd)) in now.iter().take(3) {
            feed.listed("shop", name, &raw(name, *version, *odd));
        }
    }
    for nth in 0..changes {
        let drawn = draw(oracle, chance);
        if nth < reported {
            tell(feed, oracle, drawn);
        } else {
            let (version, name, after) = drawn;
            oracle.real_change(version, name, after);
        }
    }
    match halves {
        Some(now) => {
            for (name, (version, odd)) in now.iter().skip(3) {
                feed.listed("shop", name, &raw(name, *version, *odd));
            }
        }
        None => {
            for (name, (version, odd)) in &oracle.real {
                feed.listed("shop", name, &raw(name, *version, *odd));
            }
        }
    }
    // The watch has come as far as the last change that it reported.
    let reached = oracle.real_version;
    feed.list_done(&reached.to_string(), true, later);
    listed(oracle, reached);
}

/// A list is over: everything upstream is served now, unless most objects would go and no other list said so.
fn listed(oracle: &mut Oracle, reached: u64) {
    let served = oracle.now();
    let gone: Vec<_> = served.keys().filter(|name| !oracle.real.contains_key(*name)).copied().collect();
    let most = 2 * gone.len() > served.len() && (gone.len() > FREE || gone.len() == served.len());
    oracle.doubted = most && !std::mem::take(&mut oracle.doubted);
    if oracle.doubted {
        return;
    }
    let mut changes: Vec<Drawn> = Vec::new();
    for (name, (version, odd)) in &oracle.real {
        if served.get(name) != Some(&(*version, *odd)) {
            changes.push((*version, *name, Some(*odd)));
        }
    }
    // Deletions get the lowest versions that no object has.
    let taken: BTreeSet<u64> = oracle.real.values().map(|(version, _)| *version).collect();
    let mut free = (oracle.version + 1..).filter(|version| !taken.contains(version));
    changes.extend(gone.into_iter().map(|name| (free.next().unwrap(), name, None)));
    changes.sort_unstable();
    for (version, name, after) in changes {
        oracle.change(version, name, after);
    }
    oracle.version = reached;
}

/// The server is another one, or was restored from a backup, with a lower, an equal or a higher version.
fn set_back(feed: &Feed, oracle: &mut Oracle, chance: &mut Rng) {
    let reached = [oracle.version / 2, oracle.version, oracle.version + 5][chance.usize(..3)].max(1);
    let held = oracle.now();
    let mut state: State = NAMES.iter().map(|name| (*name, (chance.u64(1..=reached), chance.bool()))).collect();
    // At least one object shows that it is another history.
    let (version, odd) = held.get("a").copied().unwrap_or((1, true));
    state.insert("a", (version.min(reached), !odd));
    feed.list_begins();
    for (name, (version, odd)) in &state {
        feed.listed("shop", name, &raw(name, *version, *odd));
    }
    feed.list_done(&reached.to_string(), true, true);
    oracle.void = oracle.void.max(oracle.version);
    (oracle.real, oracle.real_version, oracle.doubted) = (state.clone(), reached, false);
    (oracle.version, oracle.events, oracle.states) = (reached, Vec::new(), [(reached, state)].into());
}

/// A request to read the collection.
#[derive(Clone, Debug, Default)]
struct Asked {
    version: String,
    matching: Option<&'static str>,
    initial: Option<bool>,
    limit: usize,
    /// The version of a `continue` token and the name to continue after, with the token.
    token: Option<(u64, &'static str, String)>,
    odd: bool,
    watch: bool,
}

impl Asked {
    fn draw(oracle: &Oracle, tokens: &[(u64, &'static str, String)], chance: &mut Rng) -> Self {
        let near = oracle.version.saturating_sub(chance.u64(..40)).max(1);
        let version = match chance.u8(..10) {
            0..=2 => String::new(),
            3 => "0".to_owned(),
            4 => (oracle.version + chance.u64(..40)).to_string(),
            5 => "007".to_owned(),
            _ => near.to_string(),
        };
        let matching = [None, None, None, Some("Exact"), Some("NotOlderThan"), Some("Newest")][chance.usize(..6)];
        let watch = chance.bool();
        let often = chance.u8(..4) == 0;
        Self {
            version,
            matching,
            initial: Some(chance.bool()).filter(|_| often || watch && matching == Some("NotOlderThan")),
            limit: if watch { 0 } else { [0, 0, 1, 2, 5][chance.usize(..5)] },
            token: chance.choice(tokens).cloned().filter(|_| !watch && chance.u8(..3) == 0),
            odd: chance.bool(),
            watch,
        }
    }

    fn uri(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("resourceVersion", &self.version);
        self.matching.map(|matching| query.append_pair("resourceVersionMatch", matching));
        self.initial.map(|initial| query.append_pair("sendInitialEvents", &initial.to_string()));
        self.token.as_ref().map(|(.., token)| query.append_pair("continue", token));
        if self.limit > 0 {
            query.append_pair("limit", &self.limit.to_string());
        }
        if self.odd {
            query.append_pair("labelSelector", "odd=true");
        }
        if self.watch {
            // It ends by itself, with a bookmark before that.
            query
                .append_pair("watch", "1")
                .append_pair("allowWatchBookmarks", "true")
                .append_pair("timeoutSeconds", "5");
        }
        format!("/api/v1/services?{}", query.finish())
    }

    fn number(&self) -> Option<u64> {
        self.version.parse().ok().filter(|number| *number > 0)
    }

    /// The status code of a refusal for its parameters alone.
    fn refused(&self) -> Option<u16> {
        let known = matches!(self.matching, None | Some("Exact" | "NotOlderThan"));
        let wrong = if self.watch {
            self.matching.is_some() != self.initial.is_some() || self.matching.is_some_and(|it| it != "NotOlderThan")
        } else {
            let bare = self.version.is_empty() || self.token.is_some();
            let exact_zero = self.matching == Some("Exact") && self.version == "0";
            self.initial.is_some() || !known || self.matching.is_some() && (bare || exact_zero)
        };
        if wrong {
            return Some(422);
        }
        let beside_token = self.token.is_some() && !self.version.is_empty() && self.version != "0";
        (beside_token || self.version == "007").then_some(400)
    }

    /// The status code of a refusal for a version that does not exist yet, or never will.
    fn unreached(&self, oracle: &Oracle) -> Option<u16> {
        let number = self.number().filter(|number| *number > oracle.version)?;
        Some(if number <= oracle.void { 410 } else { 504 })
    }

    fn selects(&self, odd: bool) -> bool {
        odd || !self.odd
    }

    /// The expected list, or the status code of a refusal.
    fn list(&self, oracle: &Oracle) -> Result<Value, u16> {
        if let Some(code) = self.refused().or(self.unreached(oracle)) {
            return Err(code);
        }
        let legacy = self.limit > 0 && self.matching.is_none();
        let exact = self.number().filter(|_| legacy || self.matching == Some("Exact"));
        let (version, state) = match (&self.token, exact) {
            (Some((version, ..)), _) if *version > oracle.version => return Err(410),
            (Some((version, ..)), _) => (*version, oracle.at(*version).ok_or(410_u16)?.clone()),
            (None, Some(exact)) => (exact, oracle.at(exact).ok_or(410_u16)?.clone()),
            (None, None) => (oracle.version, oracle.now()),
        };
        let after = self.token.as_ref().map_or("", |(_, after, _)| after);
        let left = state.into_iter().filter(|(name, (_, odd))| *name > after && self.selects(*odd));
        let items: Vec<Value> = left.map(|(name, (version, odd))| object(name, version, odd)).collect();
        let all = self.limit == 0 || self.version == "0" && self.token.is_none();
        let limit = if all { items.len() } else { self.limit.min(items.len()) };
        let rest = items.len() - limit;
        let remaining = Some(rest).filter(|rest| *rest > 0 && !self.odd);
        Ok(
            json!({"version": version.to_string(), "items": items[..limit], "goes_on": rest > 0, "remaining": remaining}),
        )
    }

    /// The expected events, or the status code of a refusal.
    fn events(&self, oracle: &Oracle) -> Result<Vec<Value>, u16> {
        if let Some(code) = self.refused() {
            return Err(code);
        }
        let error = |code: u16| vec![json!({"ERROR": code})];
        if let Some(code) = self.unreached(oracle) {
            return Ok(error(code));
        }
        let mark = |ends: bool| json!({"BOOKMARK": oracle.version.to_string(), "ends": ends});
        let mut lines = Vec::new();
        let existing = match (self.initial, self.number()) {
            (Some(true), _) | (None, None) => Some(oracle.now()),
            (Some(false), None) => None,
            (Some(false) | None, Some(version)) if version < oracle.base() => return Ok(error(410)),
            (Some(false) | None, Some(version)) => {
                lines.extend(
                    oracle.events.iter().filter(|event| event.version > version).filter_map(|it| self.seen(it)),
                );
                None
            }
        };
        for (name, (version, odd)) in existing.into_iter().flatten().filter(|(_, (_, odd))| self.selects(*odd)) {
            lines.push(json!({"ADDED": object(name, version, odd)}));
        }
        lines.extend((self.initial == Some(true)).then(|| mark(true)));
        lines.push(mark(false));
        Ok(lines)
    }

    /// The event of a change for a watch with this selector.
    fn seen(&self, Event { version, name, before, after }: &Event) -> Option<Value> {
        let [was, is] = [before, after].map(|side| side.filter(|odd| self.selects(*odd)));
        let (what, odd) = match (was, is) {
            (None, None) => return None,
            (None, Some(odd)) => ("ADDED", odd),
            (Some(_), Some(odd)) => ("MODIFIED", odd),
            (Some(odd), None) => ("DELETED", odd),
        };
        Some(json!({what: object(name, *version, odd)}))
    }
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
    let limits = ReplicaLimits { bytes_max: 1 << 24, sweep_share_max: 0.5, sweep_free: FREE };
    let [version, plural, kind] = ["v1", "services", "Service"].map(str::to_owned);
    let kind = ReplicaKind {
        group: String::new(),
        version,
        plural,
        kind,
        namespaced: true,
        passes_writes: false,
        short: Vec::new(),
    };
    let (lite, feeds) = Lite::replica(&[kind], limits);
    let (feed, mut service) = (feeds.into_values().next().unwrap(), lite.service());
    let (mut oracle, mut chance) = (Oracle::default(), Rng::with_seed(seed));
    feed.list_begins();
    feed.list_done("50", true, true);
    (oracle.version, oracle.real_version) = (50, 50);
    oracle.states.insert(50, State::new());
    let mut tokens = Vec::new();
    for step in 0..STEPS {
        if oracle.events.len() < STEPS {
            upstream(&feed, &mut oracle, &mut chance);
        }
        let asked = Asked::draw(&oracle, &tokens, &mut chance);
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
            "remaining": metadata["remainingItemCount"]});
        assert_eq!(if code == 200 { Ok(got) } else { Err(code) }, asked.list(&oracle), "{context}");
        if let Some(token) = metadata["continue"].as_str() {
            let version = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
            let last = items.as_array().unwrap().last().unwrap()["metadata"]["name"].as_str().unwrap();
            tokens.push((version, *NAMES.iter().find(|name| **name == last).unwrap(), token.to_owned()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_read_is_answered_as_the_tables_say() {
    for seed in 0..150 {
        play(seed).await;
    }
}
