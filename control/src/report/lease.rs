//! The election against the API server: reads and writes the Lease, and publishes until when this process leads. The
//! decisions are made in `election.rs`.

use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use tidegate_config::object::ObjectName;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::FIELD_MANAGER;
use super::election::{Election, ElectionTiming, LeaseRecord, LeaseWrite, ObservedLease};
use crate::backoff::share;
use crate::clock;

/// The timeout for releasing the Lease at the end of the process. It expires by itself in any case.
const RELEASE_MAX: Duration = Duration::from_secs(2);

/// A running candidate.
pub(super) struct Campaign {
    api: Api<Lease>,
    name: String,
    election: Election,
    timing: ElectionTiming,
    /// The Lease as last read or written. Fields of others are kept.
    lease: Lease,
    /// The end of this process's leadership.
    lead: watch::Sender<Option<Instant>>,
    /// Whether the last attempt failed, so that only the first failure is logged as a warning.
    failing: bool,
}

impl Campaign {
    pub(super) fn new(
        client: kube::Client,
        lease: &ObjectName,
        identity: String,
        timing: ElectionTiming,
        lead: watch::Sender<Option<Instant>>,
    ) -> Self {
        let (api, name) = (Api::namespaced(client, &lease.namespace), lease.name.to_string());
        let election = Election::new(identity, timing);
        Self { api, name, election, timing, lease: Lease::default(), lead, failing: false }
    }

    /// Takes part in the election; never returns.
    pub(super) async fn run(&mut self) {
        loop {
            match self.attempt().await {
                Ok(()) => self.failing = false,
                Err(why) if self.failing => {
                    tracing::debug!(lease = self.name, error = %why, "the election fails still")
                }
                Err(why) => {
                    self.failing = true;
                    tracing::warn!(lease = self.name, error = %why, "an attempt of the leader election failed; it is retried");
                }
            }
            let until = self.election.until();
            self.lead.send_if_modified(|before| std::mem::replace(before, until) != until);
            // A random part, so that candidates that started together spread out.
            sleep(self.timing.retry + share(self.timing.retry / 5, fastrand::u64(..))).await;
        }
    }

    /// Releases the Lease, so that the next leader need not wait until it expires.
    pub(super) async fn release(&mut self) {
        self.lead.send_replace(None);
        let Some(next_write) = self.election.release(clock::now(), wall_us()) else { return };
        match timeout(RELEASE_MAX, self.write(&next_write)).await {
            Ok(Ok(_)) => tracing::info!(lease = self.name, "stepped down"),
            Ok(Err(why)) => tracing::debug!(lease = self.name, error = %why, "the Lease is left to run out"),
            Err(_elapsed) => tracing::debug!(lease = self.name, "the Lease is left to run out"),
        }
    }

    /// One round: reads the Lease unless it is known, and renews or claims it if possible.
    async fn attempt(&mut self) -> Result<(), String> {
        let patience = self.timing.lead / 2;
        if self.election.must_read() {
            let answer = timeout(patience, self.api.get_opt(&self.name)).await;
            let lease = answer.map_err(|_elapsed| "no answer".to_owned())?.map_err(|why| why.to_string())?;
            self.election.read(lease.as_ref().map(seen), clock::now());
            self.lease = lease.unwrap_or_default();
        }
        let Some(next_write) = self.election.next_write(clock::now(), wall_us()) else { return Ok(()) };
        match timeout(patience, self.write(&next_write)).await {
            Ok(Ok(lease)) => {
                self.election.won(next_write, seen(&lease).version, clock::now());
                self.lease = lease;
                Ok(())
            }
            // Another candidate was faster, which is not a failure.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => Ok(()),
            Ok(Err(why)) => Err(why.to_string()),
            Err(_elapsed) => Err("no answer".to_owned()),
        }
    }

    async fn write(&self, next_write: &LeaseWrite) -> Result<Lease, kube::Error> {
        let mut lease = self.lease.clone();
        let spec = lease.spec.take().unwrap_or_default();
        lease.spec = Some(spec_of(&next_write.record, spec));
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match &next_write.over {
            Some(version) => {
                lease.metadata.resource_version = Some(version.clone());
                self.api.replace(&self.name, &params, &lease).await
            }
            None => {
                lease.metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                self.api.create(&params, &lease).await
            }
        }
    }
}

/// The content of a Lease for the election.
fn seen(lease: &Lease) -> ObservedLease {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let us = |time: Option<MicroTime>| time.map_or(0, |MicroTime(time)| time.as_microsecond());
    ObservedLease {
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        record: LeaseRecord {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            acquired_us: us(spec.acquire_time),
            renewed_us: us(spec.renew_time),
            transitions: spec.lease_transitions.unwrap_or_default(),
        },
    }
}

/// The spec of a Lease with this record.
fn spec_of(record: &LeaseRecord, spec: LeaseSpec) -> LeaseSpec {
    let time = |us: i64| Timestamp::from_microsecond(us).ok().map(MicroTime);
    LeaseSpec {
        holder_identity: Some(record.holder.clone()),
        // Rounded up, so that others do not assume a shorter duration.
        lease_duration_seconds: record.duration.and_then(|it| i32::try_from(it.as_millis().div_ceil(1000)).ok()),
        acquire_time: time(record.acquired_us),
        renew_time: time(record.renewed_us),
        lease_transitions: Some(record.transitions),
        ..spec
    }
}

fn wall_us() -> i64 {
    let since = clock::wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_lease_reads_back_unchanged() {
        let record = LeaseRecord {
            holder: "a".to_owned(),
            duration: Some(Duration::from_secs(15)),
            acquired_us: 1_700_000_000_000_001,
            renewed_us: 1_700_000_000_000_002,
            transitions: 3,
        };
        let other = LeaseSpec { strategy: Some("OldestEmulationVersion".to_owned()), ..LeaseSpec::default() };
        let spec = spec_of(&record, other);
        assert_eq!(spec.strategy.as_deref(), Some("OldestEmulationVersion"), "what others keep there stays");
        let lease = Lease { spec: Some(spec), ..Lease::default() };
        let lease: Lease = serde_json::from_value(serde_json::to_value(lease).unwrap()).unwrap();
        assert_eq!(seen(&lease), ObservedLease { version: String::new(), record });
    }

    #[test]
    fn an_empty_lease_has_no_holder() {
        let record =
            LeaseRecord { holder: String::new(), duration: None, acquired_us: 0, renewed_us: 0, transitions: 0 };
        assert_eq!(seen(&Lease::default()), ObservedLease { version: String::new(), record });
    }
}
