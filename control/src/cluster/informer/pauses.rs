//! The pauses of an informer after failures: their lengths, and the notification that ends one early.
//!
//! When an API server is available again, the informer whose pause ends first finds it and notifies the others: their
//! pauses have grown with the outage, and there is no reason to wait. Each continues at a random moment, and of two
//! consecutive pauses only one ends early, however many notifications there are: repeated wrong notifications at most
//! double the requests.

use std::time::Duration;

use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{sleep, sleep_until};

use super::Limits;
use super::failure::{About, Failure};
use crate::backoff::{Backoff, share};
use crate::clock;

/// A notification between informers that the API server answers again. Clones share the channel.
#[derive(Clone, Debug, Default)]
pub struct Recovery(Sender<()>);

impl Recovery {
    /// Signals a recovery since the last check.
    pub(super) fn subscribe(&self) -> Receiver<()> {
        self.0.subscribe()
    }

    /// Notifies all informers.
    pub(super) fn signal(&self) {
        self.0.send_replace(());
    }
}

/// The pauses of one informer.
#[derive(Clone)]
pub(super) struct Pauses {
    /// One back-off for each cause: a server that has just started denies requests that it will allow soon, or no
    /// longer has a resourceVersion, and neither should be retried as late as during an outage.
    server: Backoff,
    request: Backoff,
    version: Backoff,
    limits: Limits,
    recovery: Recovery,
    /// Signals that the server has recovered since the last request began.
    recovered: Receiver<()>,
    /// Whether a request failed because of the server, so that a success is worth a notification.
    away: bool,
    /// Whether the last pause ended early.
    hurried: bool,
}

/// One pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pause {
    pub(super) length: Duration,
    /// Whether it ends early when the server has recovered.
    ends_on_recovery: bool,
}

impl Pauses {
    /// The pauses of an informer that shares no notifications yet.
    pub(super) fn new(limits: &Limits) -> Self {
        let backoff = Backoff::new(Duration::ZERO, limits.backoff_first, limits.backoff_max);
        let recovery = Recovery::default();
        Self {
            server: backoff.clone(),
            request: backoff.clone(),
            version: backoff,
            limits: limits.clone(),
            recovered: recovery.subscribe(),
            recovery,
            away: false,
            hurried: false,
        }
    }

    pub(super) fn share(&mut self, recovery: &Recovery) {
        self.recovery = recovery.clone();
        self.recovered = recovery.subscribe();
    }

    /// A request begins: earlier notifications are obsolete.
    pub(super) fn begin(&mut self) {
        self.recovered.mark_unchanged();
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
        Pause { length, ends_on_recovery: about == About::Server && !self.hurried }
    }

    /// Waits. After a notification the rest of the pause is at most `draw`'s share of the recovery spread.
    pub(super) async fn wait(&mut self, pause: Pause, draw: u64) {
        let due = clock::now() + pause.length;
        self.hurried = false;
        tokio::select! {
            () = sleep_until(due.into()) => {}
            // Never an error: the sender is held here.
            _ = self.recovered.changed(), if pause.ends_on_recovery => {
                let sooner = clock::now() + share(self.limits.recovery_spread, draw);
                self.hurried = sooner < due;
                sleep_until(due.min(sooner).into()).await;
            }
        }
    }

    /// A request has succeeded.
    pub(super) fn answered(&mut self) {
        if std::mem::take(&mut self.away) {
            self.recovery.signal();
        }
    }

    /// Runs an open watch to its end. It counts as a success after a short time.
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

    /// A watch has ended that was open for `lived`. Returns `true` if it was stable, so that the back-offs are reset.
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

    /// A failure by status; 0 is a broken connection. A server that requests a delay requests 9 seconds.
    fn failure(code: u16, asks: bool) -> Failure {
        let retry_after = asks.then_some(Duration::from_secs(9));
        let why = String::new();
        if code == 0 { Failure::Broken { why } } else { Failure::Refused { code, why, retry_after } }
    }

    /// Compares the longest pauses after consecutive failures, in milliseconds, and whether a recovery ends them early.
    #[track_caller]
    fn check(failures: &[(u16, bool)], want: &[(u64, bool)]) {
        let mut pauses = Pauses::new(&Limits::default());
        let got: Vec<(u64, bool)> = failures
            .iter()
            .map(|(code, asks)| pauses.after(&failure(*code, *asks), u64::MAX))
            .map(|pause| (u64::try_from(pause.length.as_nanos().div_ceil(1_000_000)).unwrap(), pause.ends_on_recovery))
            .collect();
        assert_eq!(got, want);
    }

    #[test]
    fn a_recovered_server_starts_a_new_back_off() {
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
        for (code, ends_on_recovery) in [(410, false), (403, false), (404, false), (422, false), (503, true)] {
            let then = if code == 503 { 30_000 } else { 250 };
            check(
                &[gone.as_slice(), &[(code, false)]].concat(),
                &[long.as_slice(), &[(then, ends_on_recovery)]].concat(),
            );
        }
    }

    #[test]
    fn every_order_of_failures_lengthens_the_pauses() {
        let turns = [(0, false), (403, false), (410, false)];
        check(&turns.repeat(3), &[250, 500, 1000].map(|ms| [(ms, true), (ms, false), (ms, false)]).concat());
    }

    #[test]
    fn retry_after_is_honoured() {
        check(&[(503, true), (429, true), (503, true)], &[(9000, false); 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_two_consecutive_pauses_ends_early() {
        let recovery = Recovery::default();
        let mut pauses = Pauses::new(&Limits { backoff_first: Duration::from_secs(30), ..Limits::default() });
        pauses.share(&recovery);
        let mut lasted = Vec::new();
        for _ in 0..5 {
            pauses.begin();
            let pause = pauses.after(&failure(0, false), u64::MAX);
            recovery.signal();
            let begun = tokio::time::Instant::now();
            pauses.wait(pause, u64::MAX).await;
            lasted.push(begun.elapsed().as_secs_f64().round() as u64);
        }
        assert_eq!(lasted, [1, 30, 1, 30, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_recovery_is_announced_once_and_only_after_a_server_failure() {
        let recovery = Recovery::default();
        let mut pauses = Pauses::new(&Limits::default());
        pauses.share(&recovery);
        let mut recovered = recovery.subscribe();
        let mut signalled =
            || std::mem::take(&mut recovered.has_changed().unwrap().then(|| recovered.mark_unchanged())).is_some();
        pauses.answered();
        assert!(!signalled(), "it was never away");
        pauses.after(&failure(404, false), 0);
        pauses.answered();
        assert!(!signalled(), "that was about the kind");
        pauses.after(&failure(0, false), 0);
        pauses.opened(sleep(Duration::from_millis(999))).await;
        assert!(!signalled(), "a watch that is cut at once is no answer");
        pauses.opened(sleep(Duration::from_millis(1001))).await;
        assert!(signalled());
        pauses.answered();
        assert!(!signalled());
    }
}
