//! The replicas in a Deployment's status, as `kubectl rollout status` and `kubectl wait` read it.

use std::time::SystemTime;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::objects::set_name;
use super::workload::{Desired, REPLICAS_MAX, Replica};

/// A time as the API writes it.
pub(super) fn stamp(now: SystemTime) -> String {
    let now = Timestamp::try_from(now).ok().and_then(|now| Timestamp::from_second(now.as_second()).ok());
    now.map(|now| now.to_string()).unwrap_or_default()
}

/// The message about Pods that were not created because there is no room for their processes.
pub(super) fn refusal(refused: usize) -> String {
    format!("{refused} Pods were not created: `tidegate dev` runs at most {REPLICAS_MAX} processes")
}

/// The desired status of a Deployment; `None` if it has it already.
pub(super) fn status(
    deployment: &Deployment,
    desired: &Desired,
    replicas: &[&Replica],
    refused: usize,
    now: SystemTime,
) -> Option<DeploymentStatus> {
    let running: Vec<&&Replica> = replicas.iter().filter(|replica| !replica.is_ending()).collect();
    let updated = running.iter().filter(|replica| replica.revision == desired.revision).count();
    let ready = running.iter().filter(|replica| replica.is_ready()).count();
    let current_ready = running.iter().filter(|r| r.is_ready() && r.revision == desired.revision).count();
    let before = deployment.status.clone().unwrap_or_default();
    let available = ready >= desired.strategy.bounds(desired.replicas).ready;
    let done = current_ready >= desired.replicas && running.len() == updated;
    let set = set_name(&desired.name.name, desired.revision);
    let complete = format!("ReplicaSet \"{set}\" has successfully progressed.");
    // A template that has been rolled out stays so while the number of its replicas changes.
    let is_complete = |one: &DeploymentCondition| one.type_ == "Progressing" && one.message.as_ref() == Some(&complete);
    let done = done || running.len() == updated && before.conditions.iter().flatten().any(is_complete);
    let paused = deployment.spec.as_ref().is_some_and(|spec| spec.paused == Some(true));
    let mut conditions = vec![
        if available {
            ("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.".to_owned())
        } else {
            (
                "Available",
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.".to_owned(),
            )
        },
        match (paused, done) {
            (true, _) => ("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused".to_owned()),
            (false, true) => ("Progressing", "True", "NewReplicaSetAvailable", complete),
            (false, false) => {
                ("Progressing", "True", "ReplicaSetUpdated", format!("ReplicaSet \"{set}\" is progressing."))
            }
        },
    ];
    if refused > 0 {
        conditions.push(("ReplicaFailure", "True", "FailedCreate", refusal(refused)));
    }
    let conditions: Vec<_> = conditions.into_iter().map(|one| condition(&before, one, now)).collect();
    let count = |number: usize| i32::try_from(number).ok().filter(|number| *number > 0);
    let status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: count(running.len()),
        updated_replicas: count(updated),
        ready_replicas: count(ready),
        available_replicas: count(ready),
        unavailable_replicas: count(desired.replicas.saturating_sub(ready)),
        conditions: Some(conditions),
        ..DeploymentStatus::default()
    };
    (status != before).then_some(status)
}

/// A condition; the time of its last transition is kept while its status is unchanged.
fn condition(
    before: &DeploymentStatus,
    (kind, state, reason, message): (&str, &str, &str, String),
    now: SystemTime,
) -> DeploymentCondition {
    let old = before.conditions.iter().flatten().find(|condition| condition.type_ == kind);
    let unchanged = old.filter(|old| old.status == state);
    let now = Timestamp::try_from(now).ok().and_then(|now| Timestamp::from_second(now.as_second()).ok()).map(Time);
    let updated = old.filter(|old| {
        old.status == state && old.reason.as_deref() == Some(reason) && old.message.as_ref() == Some(&message)
    });
    DeploymentCondition {
        type_: kind.to_owned(),
        status: state.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_transition_time: unchanged.map_or_else(|| now.clone(), |old| old.last_transition_time.clone()),
        last_update_time: updated.map_or_else(|| now.clone(), |old| old.last_update_time.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::Phase;
    use super::super::workload::tests::{desired, replica};
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn at(second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(second)
    }

    #[track_caller]
    fn check(want: usize, replicas: &[Replica], numbers: [i32; 4], available: &str, reason: &str) {
        let replicas: Vec<&Replica> = replicas.iter().collect();
        let status = status(&Deployment::default(), &desired(want, 2), &replicas, 0, at(7)).unwrap();
        let got = [status.replicas, status.updated_replicas, status.ready_replicas, status.unavailable_replicas];
        assert_eq!(got.map(Option::unwrap_or_default), numbers);
        let conditions = status.conditions.unwrap();
        assert_eq!((&*conditions[0].status, conditions[1].reason.as_deref()), (available, Some(reason)));
    }

    #[test]
    fn the_status_counts_the_replicas() {
        let (up, down) = (replica("a", 2, Phase::Ready(1)), replica("b", 2, Phase::Down));
        let (old, ending) = (replica("c", 1, Phase::Ready(1)), replica("d", 2, Phase::Ending(Some(1))));
        check(0, &[], [0, 0, 0, 0], "True", "NewReplicaSetAvailable");
        check(2, &[up.clone(), down.clone()], [2, 2, 1, 1], "False", "ReplicaSetUpdated");
        check(1, &[up.clone(), ending], [1, 1, 1, 0], "True", "NewReplicaSetAvailable");
        check(1, &[down, old.clone()], [2, 1, 1, 0], "True", "ReplicaSetUpdated");
        check(1, &[up, old], [2, 1, 2, 0], "True", "ReplicaSetUpdated");
    }

    #[test]
    fn an_equal_status_is_not_written_again() {
        let up = replica("a", 2, Phase::Ready(1));
        let mut deployment = Deployment::default();
        let first = status(&deployment, &desired(1, 2), &[&up], 0, at(7)).unwrap();
        deployment.status = Some(first.clone());
        assert_eq!(status(&deployment, &desired(1, 2), &[&up], 0, at(9)), None);
        let scaled = status(&deployment, &desired(8, 2), &[&up], 3, at(9)).unwrap();
        let message = |nth: usize| scaled.conditions.as_ref().unwrap()[nth].message.clone().unwrap();
        assert_eq!(message(0), "Deployment does not have minimum availability.");
        assert_eq!(message(1), "ReplicaSet \"cart-00000002\" has successfully progressed.");
        assert_eq!(message(2), "3 Pods were not created: `tidegate dev` runs at most 100 processes");
        let times = |status: &DeploymentStatus, nth: usize| {
            status.conditions.as_ref().unwrap()[nth].last_transition_time.clone()
        };
        assert_ne!(times(&scaled, 0), times(&first, 0), "Available has changed");
        assert_eq!(times(&scaled, 1), times(&first, 1), "Progressing has not");
    }
}
