//! The pauses of an informer after failures: how long each is, and what ends one before its time.
//!
//! An API server that comes back is found by the informer whose pause happens to end first, and that one tells the others:
//! their pauses have grown as long as the server was away, and nothing is left to wait for. Each goes at a moment of its own,
//! and of two pauses in a row only one ends so, however often it is told: word that turns out wrong again and again costs no more than
//! twice the requests.

use std::time::Duration;

use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{sleep, sleep_until};

use super::Limits;
use super::failure::{About, Failure};
use crate::backoff::{Backoff, share};
use crate::clock;

/// Told by an informer to all others that share it: the API server answers again. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Recovery(Sender<()>);

impl Recovery {
    /// Has news when somebody has told of a recovery since.
    pub(super) fn hear(&self) -> Receiver<()> {
        self.0.subscribe()
    }

    /// Tells everybody.
    pub(super) fn tell(&self) {
        self.0.send_replace(());
    }
}

/// The pauses of one informer.
#[derive(Clone)]
pub(super) struct Pauses {
    /// One for each thing that failures are about: a server that has just come back refuses what it will allow in a moment, or
    /// has forgotten a resourceVersion, and neither is asked again as late as one that is away.
    server: Backoff,
    request: Backoff,
    version: Backoff,
    limits: Limits,
    recovery: Recovery,
    /// Has news when the server has recovered since the last request began.
    heard: Receiver<()>,
    /// Whether a request failed in a way that others will want to know the end of.
    away: bool,
    /// Whether the last pause ended before its time.
    hurried: bool,
}

/// One pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pause {
    pub(super) length: Duration,
    /// Whether it ends when the server has recovered.
    hears: bool,
}

impl Pauses {
    /// Of an informer that shares nothing with others yet.
    pub(super) fn new(limits: &Limits) -> Self {
        let backoff = Backoff::new(Duration::ZERO, limits.backoff_first, limits.backoff_max);
        let recovery = Recovery::default();
        Self {
            server: backoff.clone(),
            request: backoff.clone(),
            version: backoff,
            limits: limits.clone(),
            heard: recovery.hear(),
            recovery,
            away: false,
            hurried: false,
        }
    }

    pub(super) fn share(&mut self, recovery: &Recovery) {
        self.recovery = recovery.clone();
        self.heard = recovery.hear();
    }

    /// A request begins: what was told before it is no news after it.
    pub(super) fn begin(&mut self) {
        self.heard.mark_unchanged();
    }

    /// The pause after a failure; `draw` as for [`Backoff::next`].
    pub(super) fn after(&mut self, failure: &Failure, draw: u64) -> Pause {
        let about = failure.about();
        let backoff = match about {
            About::Server => &mut self.server,
            About::Request => &mut self.request,
            About::Version => &mut self.version,
        };
        let asked = failure.retry_after().unwrap_or_default().min(self.limits.retry_after_max);
        let length = backoff.next(draw).max(asked);
        self.away |= about == About::Server;
        Pause { length, hears: about == About::Server && !self.hurried }
    }

    /// Waits. A pause that ends before its time lasts for as much of the spread as `draw` is of all numbers.
    pub(super) async fn wait(&mut self, pause: Pause, draw: u64) {
        let due = clock::now() + pause.length;
        self.hurried = false;
        tokio::select! {
            () = sleep_until(due.into()) => {}
            // Never an error: the other end is held here.
            _ = self.heard.changed(), if pause.hears => {
                let sooner = clock::now() + share(self.limits.recovery_spread, draw);
                self.hurried = sooner < due;
                sleep_until(due.min(sooner).into()).await;
            }
        }
    }

    /// A request was answered as it should be.
    pub(super) fn answered(&mut self) {
        if std::mem::take(&mut self.away) {
            self.recovery.tell();
        }
    }

    /// Lets a watch that has opened run to its end. It counts as answered when it has lasted for a moment.
    pub(super) async fn opened<T>(&mut self, watch: impl Future<Output = T>) -> T {
        let mut watch = std::pin::pin!(watch);
        if self.away {
            tokio::select! {
                biased;
                end = &mut watch => return end,
                () = sleep(self.limits.short_watch) => self.answered(),
            }
        }
        watch.await
    }

    /// A watch has ended that was open for so long. Gives whether it had settled, so that the pauses begin anew.
    pub(super) fn closed(&mut self, lived: Duration) -> bool {
        self.begin();
        let settled = lived >= self.limits.settled;
        if settled {
            self.server.reset();
            self.request.reset();
            self.version.reset();
            self.hurried = false;
        }
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What fails, by status; 0 is a connection that breaks. 9 seconds is what a server asks for that asks for anything.
    fn failure(code: u16, asks: bool) -> Failure {
        let retry_after = asks.then_some(Duration::from_secs(9));
        let why = String::new();
        if code == 0 { Failure::Broken { why } } else { Failure::Refused { code, why, retry_after } }
    }

    /// The longest pauses after failures in a row, in milliseconds, and whether recovery ends them.
    #[track_caller]
    fn check(failures: &[(u16, bool)], want: &[(u64, bool)]) {
        let mut pauses = Pauses::new(&Limits::default());
        let got: Vec<(u64, bool)> = failures
            .iter()
            .map(|(code, asks)| pauses.after(&failure(*code, *asks), u64::MAX))
            .map(|pause| (u64::try_from(pause.length.as_nanos().div_ceil(1_000_000)).unwrap(), pause.hears))
            .collect();
        assert_eq!(got, want);
    }

    #[test]
    fn what_a_server_says_that_has_come_back_is_its_first_word() {
        let gone = [(0, false); 8];
        let long = [
            (250, true),
            (500, true),
            (1000, true),
            (2000, true),
            (4000, true),
            (8000, true),
            (16_000, true),
            (30_000, true),
        ];
        check(&gone, &long);
        for (code, hears) in [(410, false), (403, false), (404, false), (422, false), (503, true)] {
            let then = if code == 503 { 30_000 } else { 250 };
            check(&[gone.as_slice(), &[(code, false)]].concat(), &[long.as_slice(), &[(then, hears)]].concat());
        }
    }

    #[test]
    fn no_order_of_failures_keeps_the_pauses_short() {
        let turns = [(0, false), (403, false), (410, false)];
        check(&turns.repeat(3), &[250, 500, 1000].map(|ms| [(ms, true), (ms, false), (ms, false)]).concat());
    }

    #[test]
    fn what_a_server_asks_for_it_gets() {
        check(&[(503, true), (429, true), (503, true)], &[(9000, false); 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_pauses_in_a_row_one_ends_before_its_time() {
        let recovery = Recovery::default();
        let mut pauses = Pauses::new(&Limits { backoff_first: Duration::from_secs(30), ..Limits::default() });
        pauses.share(&recovery);
        let mut lasted = Vec::new();
        for _ in 0..5 {
            pauses.begin();
            let pause = pauses.after(&failure(0, false), u64::MAX);
            recovery.tell();
            let begun = tokio::time::Instant::now();
            pauses.wait(pause, u64::MAX).await;
            lasted.push(begun.elapsed().as_secs_f64().round() as u64);
        }
        assert_eq!(lasted, [1, 30, 1, 30, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn news_are_told_once_and_only_by_who_missed_the_server() {
        let recovery = Recovery::default();
        let mut pauses = Pauses::new(&Limits::default());
        pauses.share(&recovery);
        let mut heard = recovery.hear();
        let mut told = || std::mem::take(&mut heard.has_changed().unwrap().then(|| heard.mark_unchanged())).is_some();
        pauses.answered();
        assert!(!told(), "it was never away");
        pauses.after(&failure(404, false), 0);
        pauses.answered();
        assert!(!told(), "that was about the kind");
        pauses.after(&failure(0, false), 0);
        pauses.opened(sleep(Duration::from_millis(999))).await;
        assert!(!told(), "a watch that is cut at once is no answer");
        pauses.opened(sleep(Duration::from_millis(1001))).await;
        assert!(told());
        pauses.answered();
        assert!(!told());
    }
}
