//! The rates of bodies in the Pingora driver. Pingora's reads and writes are not visible, so each piece of a body is
//! wrapped in an owner that records when Pingora drops it: a piece of a request body after the endpoint took it, a
//! piece of a response after the client did.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::clock;
use crate::connection::rate::{RateMeter, Rule};

/// The client must be disconnected because it is too slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooSlow;

/// The rates of one request. They are checked when a piece arrives; idle times have limits of their own.
#[derive(Debug, Default)]
pub(crate) struct BodyRates {
    /// Whether there is no minimum rate, as for gRPC streams and tunnels.
    any: bool,
    upload: Direction,
    download: Direction,
}

#[derive(Debug)]
struct Direction {
    meter: RateMeter,
    /// Bytes that arrived.
    came: u64,
    /// The pieces that Pingora holds; `None` before the first piece.
    held: Option<Arc<PiecesInTransit>>,
}

/// The pieces of one direction in transit.
#[derive(Debug)]
pub(crate) struct PiecesInTransit {
    bytes: AtomicUsize,
    /// Bytes of the pieces that were dropped.
    gone: AtomicU64,
    /// The time at which the last of them was dropped, in nanoseconds after `start`.
    emptied: AtomicU64,
    start: Instant,
}

/// A piece in transit.
struct PieceInTransit {
    bytes: Bytes,
    held: Arc<PiecesInTransit>,
}

impl BodyRates {
    /// Rates without a minimum.
    pub(crate) fn unbounded() -> Self {
        Self { any: true, ..Self::default() }
    }

    /// Records a piece of the request body. The edge waits for the client while no piece is in transit to the endpoint,
    /// from the first piece on: before it, a client may wait for "100 Continue". After the `last` piece there is no
    /// wait.
    ///
    /// # Errors
    /// If the client sends too slowly.
    pub(crate) fn sent(
        &mut self,
        piece: &mut Option<Bytes>,
        last: bool,
        rule: Rule<'_>,
        now: Instant,
    ) -> Result<(), TooSlow> {
        if self.any {
            return Ok(());
        }
        let Direction { meter, came, held } = &mut self.upload;
        let before = *came;
        *came += piece.as_ref().map_or(0, Bytes::len) as u64;
        let mut verdict = Ok(());
        if let Some(emptied) = held.as_ref().and_then(|held| held.emptied()) {
            meter.until(true, before, rule.0, rule.1, emptied.min(now));
            verdict = judge(meter, *came, rule, now);
            meter.until(false, *came, rule.0, rule.1, now);
        }
        if !last {
            hold(piece, held, now);
        }
        verdict
    }

    /// Records a piece of the response. The edge waits for the client while a piece is in transit to it.
    ///
    /// # Errors
    /// If the client reads too slowly.
    pub(crate) fn given(&mut self, piece: &mut Option<Bytes>, rule: Rule<'_>, now: Instant) -> Result<(), TooSlow> {
        if self.any {
            return Ok(());
        }
        let Direction { meter, held, .. } = &mut self.download;
        let mut verdict = Ok(());
        if let Some(held) = held {
            if let Some(emptied) = held.emptied() {
                meter.until(false, held.gone.load(Relaxed), rule.0, rule.1, emptied.min(now));
            }
            verdict = judge(meter, held.gone.load(Relaxed), rule, now);
        }
        hold(piece, held, now);
        let gone = held.as_ref().map_or(0, |held| held.gone.load(Relaxed));
        meter.until(piece.is_some(), gone, rule.0, rule.1, now);
        verdict
    }

    /// The pieces of the response in transit, from the first one on.
    pub(crate) const fn response(&self) -> Option<&Arc<PiecesInTransit>> {
        self.download.held.as_ref()
    }
}

impl Default for Direction {
    fn default() -> Self {
        Self { meter: RateMeter::DEFAULT, came: 0, held: None }
    }
}

/// Checks whether a client that has moved this number of bytes is fast enough.
fn judge(meter: &mut RateMeter, moved: u64, (limits, budget): Rule<'_>, now: Instant) -> Result<(), TooSlow> {
    match meter.until(true, moved, limits, budget, now) {
        Some(at) if at <= now => Err(TooSlow),
        Some(_) | None => Ok(()),
    }
}

/// Wraps a piece in an owner that records its drop.
fn hold(piece: &mut Option<Bytes>, held: &mut Option<Arc<PiecesInTransit>>, now: Instant) {
    let Some(bytes) = piece.take_if(|bytes| !bytes.is_empty()) else { return };
    let held = held.get_or_insert_with(|| {
        let (in_transit, gone, emptied) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(PiecesInTransit { bytes: in_transit, gone, emptied, start: now })
    });
    held.bytes.fetch_add(bytes.len(), Relaxed);
    *piece = Some(Bytes::from_owner(PieceInTransit { bytes, held: Arc::clone(held) }));
}

impl PiecesInTransit {
    /// The bytes in transit.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// The time at which the last piece was dropped, if none is in transit.
    fn emptied(&self) -> Option<Instant> {
        let emptied = Duration::from_nanos(self.emptied.load(Relaxed));
        (self.bytes() == 0).then(|| self.start + emptied)
    }
}

impl AsRef<[u8]> for PieceInTransit {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for PieceInTransit {
    fn drop(&mut self) {
        let PiecesInTransit { bytes, gone, emptied, start } = &*self.held;
        gone.fetch_add(self.bytes.len() as u64, Relaxed);
        let after = clock::now().saturating_duration_since(*start).as_nanos();
        emptied.store(u64::try_from(after).unwrap_or(u64::MAX), Relaxed);
        bytes.fetch_sub(self.bytes.len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Budget, BudgetLimits};
    use crate::options::{Enforce, RateLimits};

    const LIMITS: RateLimits =
        RateLimits { bytes_per_second: 500, grace: Duration::from_secs(60), enforce: Enforce::Always };

    const SECOND: Duration = Duration::from_secs(1);

    fn piece(bytes: usize) -> Option<Bytes> {
        Some(Bytes::from(vec![b'x'; bytes]))
    }

    /// Sets the time of the last drop, because pieces read the clock.
    fn let_go(direction: &Direction, at: Instant) {
        let held = direction.held.as_ref().unwrap();
        held.emptied.store(u64::try_from((at - held.start).as_nanos()).unwrap(), Relaxed);
    }

    /// A client sends pieces of `bytes` bytes at an interval; `want` is the piece at which it is too slow. The endpoint
    /// takes each `at_once`, or only when the next one has arrived.
    #[track_caller]
    fn check_upload(bytes: usize, every: Duration, at_once: bool, want: Option<usize>) {
        let budget = Budget::new(&BudgetLimits::default());
        let (mut rates, mut now) = (BodyRates::default(), clock::now());
        let mut on_the_way = None;
        let too_slow = (0..100).find(|_| {
            let mut piece = piece(bytes);
            let sent = rates.sent(&mut piece, false, (&LIMITS, &budget), now);
            assert_eq!(piece.as_ref().unwrap().len(), bytes);
            on_the_way = piece.filter(|_| !at_once);
            let_go(&rates.upload, now);
            now += every;
            sent.is_err()
        });
        assert_eq!(too_slow, want, "{bytes} bytes every {every:?}, {at_once}");
    }

    #[test]
    fn a_client_that_trickles_its_body_is_too_slow_unless_the_endpoint_is_slow() {
        check_upload(1, 20 * SECOND, true, Some(3));
        check_upload(9_000, 20 * SECOND, true, Some(3));
        check_upload(11_000, 20 * SECOND, true, None);
        check_upload(1, 20 * SECOND, false, None);
    }

    /// A response arrives in pieces of `bytes` bytes; the client takes each after `taken_after` others have arrived.
    #[track_caller]
    fn check_download(bytes: usize, every: Duration, taken_after: usize, want: Option<usize>) {
        let budget = Budget::new(&BudgetLimits::default());
        let (mut rates, mut now) = (BodyRates::default(), clock::now());
        let mut on_the_way = std::collections::VecDeque::new();
        let too_slow = (0..100).find(|_| {
            let mut piece = piece(bytes);
            let given = rates.given(&mut piece, (&LIMITS, &budget), now);
            on_the_way.push_back(piece);
            if on_the_way.len() > taken_after {
                on_the_way.pop_front();
            }
            let_go(&rates.download, now);
            now += every;
            given.is_err()
        });
        assert_eq!(too_slow, want, "{bytes} bytes every {every:?}, taken after {taken_after}");
    }

    #[test]
    fn a_client_that_reads_too_little_is_too_slow_unless_the_endpoint_is_slow() {
        // Taken at once: only the endpoint is slow.
        check_download(10, 20 * SECOND, 0, None);
        check_download(10, 20 * SECOND, 1, Some(3));
        check_download(31_000, 20 * SECOND, 1, None);
    }

    #[test]
    fn unbounded_rates_have_no_minimum() {
        let budget = Budget::new(&BudgetLimits::default());
        let (mut rates, start) = (BodyRates::unbounded(), clock::now());
        for second in [0, 100, 200] {
            let now = start + second * SECOND;
            rates.sent(&mut piece(1), false, (&LIMITS, &budget), now).unwrap();
            rates.given(&mut piece(1), (&LIMITS, &budget), now).unwrap();
        }
        assert!(rates.upload.held.is_none() && rates.download.held.is_none());
    }

    #[test]
    fn the_last_piece_is_not_delayed() {
        let budget = Budget::new(&BudgetLimits::default());
        let mut rates = BodyRates::default();
        let mut only = piece(5);
        let at = only.as_ref().unwrap().as_ptr();
        rates.sent(&mut only, true, (&LIMITS, &budget), clock::now()).unwrap();
        assert_eq!(only.unwrap().as_ptr(), at);
        assert!(rates.upload.held.is_none());
    }
}
