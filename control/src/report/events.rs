//! The single worker that writes Events: for one object after another, it gets the findings and writes the Events that
//! are due.

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use serde::de::IgnoredAny;
use tidegate_config::object::{ObjectRef, Uid};
use tokio::time::sleep;

use super::correlator::{EventCorrelator, NextWrite};
use super::event::{self, EventRecord};
use super::send::{NotWritten, outcome};
use super::{LOOK_PAUSE, Leadership, PAUSE, Reporter};
use crate::clock;
use crate::queue::Lane;
use crate::reconcile::ObjectFindings;

/// The delay before an object is checked again whose findings the loop does not know yet.
const UNKNOWN: Duration = Duration::from_secs(30);

/// The next check of an object.
enum NextCheck {
    /// After this delay, or when the findings change.
    Rest(Option<Duration>),
    /// After a delay that grows with consecutive failures.
    Retry,
}

impl Reporter {
    /// Writes Events while the queue exists. The history is dropped at the end of leadership: the next leader may have
    /// written more.
    pub(super) async fn write_events(&self, lead: &Leadership) {
        let queue = &self.view.reports.events;
        let mut correlator = EventCorrelator::default();
        while let Some(object) = queue.get().await {
            sleep(LOOK_PAUSE).await;
            match self.report_findings(&mut correlator, &object, lead).await {
                NextCheck::Rest(after) => {
                    if let Some(after) = after {
                        queue.add_after(object.clone(), after, Lane::Slow);
                    }
                    object.succeeded();
                }
                NextCheck::Retry => {
                    object.retry();
                }
            }
        }
    }

    async fn report_findings(
        &self,
        correlator: &mut EventCorrelator,
        object: &ObjectRef,
        lead: &Leadership,
    ) -> NextCheck {
        self.retry_after.over().await;
        let Some(ObjectFindings { uid, findings }) = self.view.findings_to_report(object.clone()).await else {
            return NextCheck::Rest(Some(UNKNOWN));
        };
        let records: Vec<EventRecord> =
            findings.iter().filter_map(|finding| Some(EventRecord::of(uid?, finding))).collect();
        loop {
            let now = clock::now();
            let (record, made, written) = match correlator.next(object, uid, &records, now) {
                NextWrite::Rest(until) => {
                    return NextCheck::Rest(until.map(|until| until.saturating_duration_since(now)));
                }
                NextWrite::Full => {
                    self.metrics.dropped.inc();
                    return NextCheck::Rest(None);
                }
                NextWrite::Create(record) => (record, true, self.create_event(lead, object, uid, record).await),
                NextWrite::Renew(record, count) => (record, false, self.renew_event(lead, object, record, count).await),
            };
            self.metrics.events.with_label_values(&[outcome(&written)]).inc();
            let now = clock::now();
            if let Err(
                refusal @ (NotWritten::Forbidden(_)
                | NotWritten::Refused(_)
                | NotWritten::Conflict
                | NotWritten::Failed(_)),
            ) = &written
            {
                self.unwritten_events.again("an Event could not be written", object, refusal);
            }
            match written {
                Ok(count) => {
                    self.unwritten_events.over();
                    correlator.recorded(object, record.id, Some(count), now);
                }
                Err(NotWritten::Gone) if !made => correlator.vanished(object, record.id),
                // The namespace is terminating, and the object with it; or the Event exists; or it will never be
                // accepted.
                Err(NotWritten::Gone | NotWritten::Exists | NotWritten::Refused(_)) => {
                    correlator.recorded(object, record.id, None, now);
                }
                Err(NotWritten::Forbidden(_)) => correlator.forbid(object, now),
                Err(NotWritten::Throttled(time)) => {
                    self.retry_after.begin(time);
                    return NextCheck::Rest(Some(time));
                }
                Err(NotWritten::Conflict | NotWritten::Failed(_)) if correlator.failed(object) => {
                    sleep(PAUSE).await;
                    return NextCheck::Retry;
                }
                Err(NotWritten::Conflict | NotWritten::Failed(_)) => {
                    self.metrics.dropped.inc();
                    correlator.recorded(object, record.id, None, now);
                }
            }
            sleep(PAUSE).await;
        }
    }

    async fn create_event(
        &self,
        lead: &Leadership,
        object: &ObjectRef,
        uid: Option<Uid>,
        record: &EventRecord,
    ) -> Result<i32, NotWritten> {
        // Records only exist for objects with a uid.
        let uid = uid.ok_or(NotWritten::Gone)?;
        let event = event::create(object, uid, record, &self.identity, wall());
        self.send::<IgnoredAny>(lead, event).await.map(|IgnoredAny| 1)
    }

    async fn renew_event(
        &self,
        lead: &Leadership,
        object: &ObjectRef,
        record: &EventRecord,
        count: Option<i32>,
    ) -> Result<i32, NotWritten> {
        let known = match count {
            Some(count) => count,
            None => event::count(&self.send::<Event>(lead, event::read_count(object, record)).await?),
        };
        let count = known.max(1).saturating_add(1);
        let renewed = event::renew(object, record, count, wall());
        self.send::<IgnoredAny>(lead, renewed).await.map(|IgnoredAny| count)
    }
}

fn wall() -> Timestamp {
    // A time before year 1 or after year 9999 is invalid.
    Timestamp::try_from(clock::wall()).unwrap_or_default()
}
