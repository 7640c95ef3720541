//! Connections that are being opened. Requests that come meanwhile wait for them, up to the number that one connection
//! takes: a burst would open a connection for each.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout_at;

use super::{Key, StreamSlot, open, take};
use crate::clock;
use crate::options::UpstreamLimits;
use crate::reason::Reason;

/// The outcome of an opening; `None` until it is known.
type Outcome = Option<Result<(), Reason>>;

struct Opening {
    number: u64,
    /// The number of requests that wait for it.
    waiting: usize,
    outcome: watch::Receiver<Outcome>,
}

#[derive(Default)]
struct Openings {
    by_key: HashMap<Key, Opening, foldhash::fast::RandomState>,
    numbers: u64,
}

thread_local! {
    static OPENINGS: RefCell<Openings> = RefCell::default();
}

/// The opening of a request, until its end or until the request is gone; then one of those that wait opens a
/// connection.
struct OpeningGuard<'k> {
    key: &'k Key,
    number: u64,
    sender: watch::Sender<Outcome>,
}

impl<'k> OpeningGuard<'k> {
    fn begin(key: &'k Key) -> Self {
        let (sender, outcome) = watch::channel(None);
        OPENINGS.with_borrow_mut(|openings| {
            openings.numbers += 1;
            let number = openings.numbers;
            // This replaces one without room for more requests.
            openings.by_key.insert(key.clone(), Opening { number, waiting: 0, outcome });
            Self { key, number, sender }
        })
    }
}

impl Drop for OpeningGuard<'_> {
    fn drop(&mut self) {
        // It fails when the thread ends.
        let removed = OPENINGS.try_with(|openings| {
            let mut openings = openings.borrow_mut();
            if openings.by_key.get(self.key).is_some_and(|opening| opening.number == self.number) {
                openings.by_key.remove(self.key);
            }
        });
        removed.ok();
    }
}

/// The outcome of an opening that has room for one more request.
fn join(key: &Key, limits: &UpstreamLimits) -> Option<watch::Receiver<Outcome>> {
    OPENINGS.with_borrow_mut(|openings| {
        let opening = openings.by_key.get_mut(key)?;
        let has_room = opening.waiting + 1 < limits.http2_streams_max;
        has_room.then(|| {
            opening.waiting += 1;
            opening.outcome.clone()
        })
    })
}

/// A place on a new connection, which later requests and those that wait for it share.
///
/// # Errors
/// The reason why there is none.
pub(crate) async fn connect(key: &Key, within: Duration, limits: &UpstreamLimits) -> Result<StreamSlot, Reason> {
    let end = clock::now() + within;
    while let Some(mut outcome) = join(key, limits) {
        let result = timeout_at(end.into(), outcome.wait_for(Option::is_some)).await;
        // It is closed without an outcome if its request is gone.
        if let Ok(result) = result.map_err(|_| Reason::ConnectTimeout)?
            && let Some(Err(reason)) = *result
        {
            return Err(reason);
        }
        if let Some(place) = take(key, limits) {
            return Ok(place);
        }
    }
    let own = OpeningGuard::begin(key);
    let opened = open(key, end.saturating_duration_since(clock::now()), limits).await;
    own.sender.send_replace(Some(opened.as_ref().map(drop).map_err(|reason| *reason)));
    opened
}
