//! The state of the keys of one source, and the transition after a fetch. Pure.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_config::model::auth::KeySet;

use super::KeySetLimits;
use crate::backoff::Backoff;

/// The state of a source that is wanted.
#[derive(Debug)]
pub(super) struct Tracked {
    /// The last keys.
    keys: Option<Arc<KeySet>>,
    /// Why the last fetch failed.
    fault: Option<Arc<str>>,
    /// When the last fetch ended.
    pub(super) last: Option<Instant>,
    backoff: Backoff,
}

/// What follows from a fetch.
#[derive(Debug)]
pub(super) struct Taken {
    /// The keys, or why there are none, unless this is known.
    pub(super) news: Option<Result<Arc<KeySet>, Arc<str>>>,
    /// The time until the next fetch.
    pub(super) delay: Duration,
}

impl Tracked {
    pub(super) fn new(keys: Option<Arc<KeySet>>, limits: &KeySetLimits) -> Self {
        let (first, max) = (*limits.retry.start(), *limits.retry.end());
        Self { keys, fault: None, last: None, backoff: Backoff::new(first, first, max) }
    }

    pub(super) const fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// Whether a token was signed with another key since the last call.
    pub(super) fn is_outdated(&self) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.take_unknown_key())
    }

    /// Takes the result of a fetch.
    pub(super) fn take(
        &mut self,
        fetched: Result<KeySet, String>,
        limits: &KeySetLimits,
        now: Instant,
        draw: u64,
    ) -> Taken {
        self.last = Some(now);
        match fetched {
            Ok(keys) => {
                self.backoff.reset();
                let same = self.keys.as_ref().filter(|known| ***known == keys).cloned();
                let is_known = same.is_some() && self.fault.is_none();
                // The same value: the note of an unknown key is in the one that requests see.
                let keys = same.unwrap_or_else(|| Arc::new(keys));
                (self.keys, self.fault) = (Some(Arc::clone(&keys)), None);
                let spread = limits.interval / 10;
                let part = u32::try_from(draw % 1000).unwrap_or_default();
                Taken { news: (!is_known).then_some(Ok(keys)), delay: limits.interval + spread * part / 1000 }
            }
            Err(why) => {
                let is_known = self.fault.as_deref() == Some(&*why);
                let why: Arc<str> = why.into();
                self.fault = Some(Arc::clone(&why));
                Taken { news: (!is_known).then_some(Err(why)), delay: self.backoff.next(draw) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED25519: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn keys(id: &str) -> KeySet {
        let json = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"{id}","x":"{ED25519}"}}]}}"#);
        KeySet::read(json.as_bytes()).unwrap()
    }

    /// Takes one fetch after another, and compares what is told and the delays in seconds. The random draw is the
    /// lowest.
    #[track_caller]
    fn check(steps: &[(Result<&str, &str>, &str, u64)]) {
        let (limits, now) = (KeySetLimits::default(), crate::clock::now());
        let mut tracked = Tracked::new(None, &limits);
        let mut last: Option<Arc<KeySet>> = None;
        for (n, (fetched, want, delay_s)) in steps.iter().enumerate() {
            let Taken { news, delay } = tracked.take(fetched.map(keys).map_err(ToOwned::to_owned), &limits, now, 0);
            let text = match &news {
                None => "",
                Some(Err(why)) => &**why,
                Some(Ok(keys)) => {
                    let before = last.replace(Arc::clone(keys));
                    if before.is_some_and(|before| Arc::ptr_eq(&before, keys)) { "the same" } else { "new" }
                }
            };
            assert_eq!((text, delay.as_secs()), (*want, *delay_s), "step {n}");
        }
    }

    #[test]
    fn changes_of_keys_and_faults_are_told_once() {
        check(&[
            (Err("away"), "away", 5),
            (Err("away"), "", 5),
            (Err("404"), "404", 5),
            (Ok("a"), "new", 300),
            (Ok("a"), "", 300),
            (Ok("b"), "new", 300),
            (Err("away"), "away", 5),
            (Ok("b"), "the same", 300),
            (Ok("b"), "", 300),
        ]);
    }

    #[test]
    fn known_keys_are_no_news() {
        let limits = KeySetLimits::default();
        let mut tracked = Tracked::new(Some(Arc::new(keys("a"))), &limits);
        assert!(tracked.take(Ok(keys("a")), &limits, crate::clock::now(), 0).news.is_none());
        assert!(tracked.take(Ok(keys("b")), &limits, crate::clock::now(), 0).news.is_some());
    }
}
