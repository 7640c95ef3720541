//! The signals that end the process: SIGTERM, SIGINT, and SIGHUP, which a closed terminal sends.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

/// A signal that follows another within this time is taken for the same one.
const TWIN: Duration = Duration::from_millis(250);

/// The termination signals; each arrival is reported once.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs the handlers; from then on the signals no longer end the process.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Like [`Self::next`], but skips signals that follow at once: some wrappers send a signal to the process and again
    /// to its group.
    pub(crate) async fn next_but_twins(&mut self) -> &'static str {
        let twins = async {
            loop {
                self.next().await;
            }
        };
        drop(timeout(TWIN, twins).await);
        self.next().await
    }

    /// Waits for the next signal and returns its name. Cancel-safe.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}
