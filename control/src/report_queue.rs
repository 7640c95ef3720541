//! The queues of reports to the cluster, between the loop, which fills them, and the writers of `status`.

mod contests;

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate_config::object::ObjectRef;

pub(crate) use self::contests::Contests;
use crate::queue::{Lane, LaneShares, Meter, Queue, Retries, Workqueue};
use crate::reconcile::{ChangedFindings, PendingStatusUpdates};

/// The delay for writing a changed number of attached routes: a thousand new routes become one write.
const COUNT_AFTER: Duration = Duration::from_millis(200);
/// The delay before a finding is reported, if it still stands: the objects of an application arrive one after another,
/// and references that are missing only in between are not reported.
const TELL_AFTER: Duration = Duration::from_secs(2);
/// The delays after failed writes: at most a second at first, and at most five minutes at last.
const RETRIES: Retries = Retries { first: Duration::from_secs(1), max: Duration::from_secs(300) };

/// The queues of reports. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    /// Objects whose status may have to be written.
    pub(crate) statuses: Workqueue<ObjectRef>,
    /// Objects whose Events may have to be written.
    pub(crate) events: Workqueue<ObjectRef>,
    /// Gateways whose infrastructure may have to be written.
    pub(crate) gateways: Workqueue<ObjectRef>,
    /// Objects whose status another client keeps overwriting, until it is known which.
    pub(crate) contested: Workqueue<ObjectRef>,
    /// Whether this process writes. Otherwise the queues stay empty.
    pub(crate) wanted: Arc<AtomicBool>,
}

impl Reports {
    pub(crate) fn new([statuses, events, gateways]: [Meter; 3]) -> Self {
        let [statuses, events, gateways] = [statuses, events, gateways].map(queue);
        Self { statuses, events, gateways, contested: queue(Meter::default()), wanted: Arc::default() }
    }

    /// Whether this process writes reports.
    pub(crate) fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    pub(crate) fn make(&self, gateways: Vec<ObjectRef>) {
        gateways.into_iter().for_each(|gateway| self.gateways.add(gateway, Lane::Fast));
    }

    pub(crate) fn name(
        &self,
        PendingStatusUpdates { all, changed, counting, rewritten, overwritten }: PendingStatusUpdates,
        found: ChangedFindings,
        contests: &mut Contests,
        now: Instant,
    ) {
        let repairs: BTreeMap<ObjectRef, Duration> =
            overwritten.into_iter().map(|object| (object.clone(), contests.overwritten(object, now))).collect();
        all.into_iter().for_each(|object| self.statuses.add(object, Lane::Slow));
        changed.into_iter().for_each(|object| self.statuses.add(object, Lane::Fast));
        counting.into_iter().for_each(|object| self.statuses.add_after(object, COUNT_AFTER, Lane::Fast));
        for object in rewritten {
            let after = repairs.get(&object).copied().unwrap_or(contests::REPAIR_AFTER);
            self.statuses.add_after(object, after, Lane::Fast);
        }
        found.all.into_iter().for_each(|object| self.events.add(object, Lane::Slow));
        found.changed.into_iter().for_each(|object| self.events.add_after(object, TELL_AFTER, Lane::Fast));
    }
}

fn queue<K: Clone + Eq + Hash>(meter: Meter) -> Workqueue<K> {
    let (fast_turns_max, slow_age_max) = (8, Duration::from_secs(30));
    let share = LaneShares { batch_max: 1, slow_batch_max: 1, fast_turns_max, slow_age_max, aged_every: 2 };
    Workqueue::new(Queue::new(meter, RETRIES), share, |_| 0)
}
