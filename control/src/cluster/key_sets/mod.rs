//! Fetches the keys of the issuers of tokens for as long as policies name them, and sends the control loop an event
//! when they change, or when it becomes known that they cannot be fetched.
//!
//! Keys are fetched at an interval, and sooner if a token was signed with a key that is not known, at most once in a
//! while for all tokens together. The last keys stay while an issuer does not answer.

mod client;
mod documents;
mod metrics;
mod tracked;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use tidegate_config::model::auth::{KeySet, KeySource};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

pub use client::KeyClient;
pub(super) use documents::kept_source;
pub use metrics::KeySetMetrics;

use crate::clock;
use crate::cluster::cache::Sink;
use crate::cluster::fetch_schedule::{Fetch, FetchSchedule};
use crate::event::Event;
use crate::interest::KeySources;
use tracked::Tracked;

/// How often it is looked at whether tokens were signed with unknown keys.
const UNKNOWN_KEYS_EVERY: Duration = Duration::from_secs(1);

/// Limits of the fetches of keys.
#[derive(Clone, Debug)]
pub struct KeySetLimits {
    /// The interval between two fetches of a key set that succeed, plus up to a tenth of it at random.
    pub interval: Duration,
    /// The back-off after a fetch that failed, from its initial to its longest delay.
    pub retry: RangeInclusive<Duration>,
    /// The shortest time from one fetch to the next because of tokens that were signed with unknown keys.
    pub unknown_key: Duration,
    /// The limit of concurrent fetches. One namespace has at most half of them, rounded up.
    pub fetches_max: usize,
    /// The largest document that is kept on disk. Keys of a larger one are not there after a restart.
    pub kept_bytes_max: usize,
}

impl Default for KeySetLimits {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(300),
            retry: Duration::from_secs(5)..=Duration::from_secs(60),
            unknown_key: Duration::from_secs(30),
            fetches_max: 16,
            kept_bytes_max: 64 << 10,
        }
    }
}

impl KeySetLimits {
    /// The part of a document that is kept on disk: all of it, or nothing, in place of an older one.
    fn kept<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        Some(text).filter(|text| text.len() <= self.kept_bytes_max)
    }
}

/// The last keys of sources.
pub type KnownKeys = BTreeMap<KeySource, Arc<KeySet>>;

/// Keys, with the text that they were read from.
#[derive(Debug)]
pub(super) struct FetchedSet {
    pub(super) keys: KeySet,
    pub(super) text: Bytes,
}

/// Fetches the wanted keys. Clones are independent.
#[derive(Clone)]
pub struct KeySetFollower {
    client: KeyClient,
    limits: KeySetLimits,
    wanted: watch::Receiver<Arc<KeySources>>,
    events: mpsc::Sender<Event>,
    rng: fastrand::Rng,
    metrics: KeySetMetrics,
    /// Keys that the loop has already, of sources that have not been wanted yet.
    known: KnownKeys,
    /// The writer of key sets to the cache on disk.
    sink: Option<Sink>,
}

/// The end of a fetch.
struct Fetched {
    turn: Fetch<KeySource>,
    result: Result<FetchedSet, String>,
}

/// The state of one run.
struct FollowerState {
    limits: KeySetLimits,
    sources: BTreeMap<KeySource, Tracked>,
    schedule: FetchSchedule<KeySource>,
    fetches: FuturesUnordered<BoxFuture<'static, Fetched>>,
}

impl KeySetFollower {
    /// A follower that has not started. `seed` decides its delays.
    #[must_use]
    pub fn new(
        client: KeyClient,
        limits: KeySetLimits,
        wanted: watch::Receiver<Arc<KeySources>>,
        events: mpsc::Sender<Event>,
        metrics: KeySetMetrics,
        seed: u64,
    ) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self { client, limits, wanted, events, rng, metrics, known: KnownKeys::new(), sink: None }
    }

    /// The same, with key sets kept on disk, and with those that the loop has to start with.
    #[must_use]
    pub fn keeping(mut self, sink: Option<Sink>, known: KnownKeys) -> Self {
        (self.sink, self.known) = (sink, known);
        self
    }

    /// Fetches keys until `stop` is cancelled, or until the sender of sources or the receiver of events is gone.
    pub async fn run(self, stop: CancellationToken) {
        let _done: Option<()> = stop.run_until_cancelled(self.follow()).await;
    }

    async fn follow(mut self) {
        let mut state = FollowerState::new(self.limits.clone());
        self.wanted.mark_changed();
        let mut any = false;
        loop {
            state.begin_fetches(&self.client, clock::now());
            let due = state.next(clock::now());
            tokio::select! {
                changed = self.wanted.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let wanted = Arc::clone(&self.wanted.borrow_and_update());
                    let recalled = state.want(&wanted, &mut self.known, clock::now());
                    // None are wanted before the first model.
                    any |= !wanted.is_empty();
                    if let Some(sink) = self.sink.as_ref().filter(|_| any) {
                        sink.retain(wanted.keys().map(documents::kept_name));
                    }
                    for (source, keys) in recalled {
                        if self.events.send(Event::KeySet { source, fetched: Ok(keys) }).await.is_err() {
                            return;
                        }
                    }
                }
                Some(Fetched { turn, result: fetched }) = state.fetches.next(), if !state.fetches.is_empty() => {
                    self.metrics.count(fetched.is_ok());
                    let text = fetched.as_ref().ok().map(|fetched| fetched.text.clone());
                    let Some(fetched) = state.take(&turn, fetched, clock::now(), self.rng.u64(..)) else { continue };
                    if let (Some(sink), Ok(_), Some(text)) = (&self.sink, &fetched, text) {
                        sink.value(&documents::kept_name(&turn.key), self.limits.kept(&text));
                    }
                    if let Err(why) = &fetched {
                        tracing::warn!(url = %turn.key.url(), error = %why, "keys of tokens cannot be fetched");
                    }
                    if self.events.send(Event::KeySet { source: turn.key, fetched }).await.is_err() {
                        return;
                    }
                }
                () = tokio::time::sleep_until(due.unwrap_or_else(clock::now).into()), if due.is_some() => {
                    state.hurry_outdated(clock::now());
                }
            }
            self.metrics.set_missing(state.sources.values().filter(|tracked| !tracked.has_keys()).count());
        }
    }
}

impl FollowerState {
    fn new(limits: KeySetLimits) -> Self {
        let schedule = FetchSchedule::new(limits.fetches_max);
        Self { limits, sources: BTreeMap::new(), schedule, fetches: FuturesUnordered::new() }
    }

    /// Replaces the sources. Returns the known keys of the new ones: the control loop drops keys that are not wanted,
    /// and a fetch that finds the same keys would send no event.
    fn want(&mut self, wanted: &KeySources, known: &mut KnownKeys, now: Instant) -> KnownKeys {
        self.sources.retain(|source, _| wanted.contains_key(source));
        let mut recalled = KnownKeys::new();
        for source in wanted.keys() {
            self.sources.entry(source.clone()).or_insert_with(|| {
                let keys = known.remove(source);
                recalled.extend(keys.clone().map(|keys| (source.clone(), keys)));
                Tracked::new(keys, &self.limits)
            });
        }
        self.schedule.want(wanted, now);
        recalled
    }

    fn begin_fetches(&mut self, client: &KeyClient, now: Instant) {
        while let Some(turn) = self.schedule.begin(now) {
            let client = client.clone();
            let fetch = async move {
                let result = documents::fetch(&client, &turn.key).await;
                Fetched { turn, result }
            };
            self.fetches.push(fetch.boxed());
        }
    }

    /// When there is something to do again.
    fn next(&self, now: Instant) -> Option<Instant> {
        let look = (!self.sources.is_empty()).then(|| now + UNKNOWN_KEYS_EVERY);
        self.schedule.due().into_iter().chain(look).min()
    }

    /// Brings the fetches of keys forward that are missing one that a token was signed with.
    fn hurry_outdated(&mut self, now: Instant) {
        for (source, tracked) in &self.sources {
            if tracked.is_outdated() {
                let at = tracked.last.map_or(now, |last| now.max(last + self.limits.unknown_key));
                self.schedule.hurry(source, at);
            }
        }
    }

    /// Takes the result of a fetch; returns what the control loop has to know, if it does not know it.
    fn take(
        &mut self,
        turn: &Fetch<KeySource>,
        fetched: Result<FetchedSet, String>,
        now: Instant,
        draw: u64,
    ) -> Option<Result<Arc<KeySet>, Arc<str>>> {
        // It may no longer be wanted, or may have been dropped and wanted again during the fetch.
        let taken = self
            .sources
            .get_mut(&turn.key)
            .map(|tracked| tracked.take(fetched.map(|fetched| fetched.keys), &self.limits, now, draw));
        self.schedule.end(turn, taken.as_ref().map(|taken| now + taken.delay));
        taken?.news
    }
}

impl fmt::Debug for KeySetFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySetFollower").field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_key_set_is_not_kept_on_disk() {
        let (limits, text) = (KeySetLimits::default(), vec![b' '; (64 << 10) + 1]);
        assert_eq!((limits.kept(&text), limits.kept(&text[1..])), (None, Some(&text[1..])));
    }

    #[test]
    fn tokens_with_unknown_keys_bring_a_fetch_forward_once() {
        let (limits, now) = (KeySetLimits::default(), clock::now());
        let source = KeySource::Jwks("http://a/".into());
        let read = || FetchedSet {
            keys: KeySet::read(
                br#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#,
            )
            .unwrap(),
            text: Bytes::new(),
        };
        let mut state = FollowerState::new(limits.clone());
        let wanted = [(source.clone(), [Arc::from("shop")].into())].into();
        state.want(&wanted, &mut KnownKeys::new(), now);
        let turn = state.schedule.begin(now).unwrap();
        let keys = state.take(&turn, Ok(read()), now, 0).unwrap().unwrap();
        let due = |state: &FollowerState| state.schedule.due().map(|due| due - now);
        assert_eq!(due(&state), Some(limits.interval));
        state.hurry_outdated(now);
        assert_eq!(due(&state), Some(limits.interval));
        // However many tokens there are, and however often it is looked at.
        for _ in 0..10 {
            keys.note_unknown_key();
            keys.note_unknown_key();
            state.hurry_outdated(now + Duration::from_secs(1));
            assert_eq!(due(&state), Some(limits.unknown_key));
        }
        let later = now + limits.unknown_key;
        let turn = state.schedule.begin(later).unwrap();
        assert!(state.take(&turn, Ok(read()), later, 0).is_none());
        assert_eq!(due(&state), Some(limits.unknown_key + limits.interval));
    }
}
