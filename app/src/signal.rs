//! The signals that end the process: SIGTERM, SIGINT, and SIGHUP, which a closed terminal sends.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

/// What follows a signal this closely is the same signal.
const TWIN: Duration = Duration::from_millis(250);

/// All of them; each arrival is told once.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// From now on the signals come here instead of ending the process.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// As [`Self::next`], but what comes at once is passed over: some wrappers send a signal to the process and again to
    /// its group.
    pub(crate) async fn next_but_twins(&mut self) -> &'static str {
        let twins = async {
            loop {
                self.next().await;
            }
        };
        drop(timeout(TWIN, twins).await);
        self.next().await
    }

    /// Waits for the next one and names it. Safe to drop.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}
