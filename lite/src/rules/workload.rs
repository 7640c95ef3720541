//! The workloads that nothing runs: StatefulSets, DaemonSets, ReplicationControllers, Jobs and CronJobs. They are
//! stored, with the defaults and the first checks of the real server.

use serde_json::{Map, Value};

use super::deployment::check_selector;
use super::{check_immutable, check_value, child, default, pod, text};
use crate::causes::Causes;

/// The fields of a StatefulSet's spec that can change.
const CHANGING: &[&str] = &[
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

pub(super) fn stateful_set_defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    let spec = child(new, "spec");
    default(spec, "podManagementPolicy", "OrderedReady");
    default(spec, "replicas", 1);
    default(spec, "revisionHistoryLimit", 10);
    default(spec, "serviceName", "");
    let strategy = child(spec, "updateStrategy");
    if text(strategy, "type").is_empty() {
        default(strategy, "type", "RollingUpdate");
        default(child(strategy, "rollingUpdate"), "partition", 0);
    }
    let kept = child(spec, "persistentVolumeClaimRetentionPolicy");
    default(kept, "whenDeleted", "Retain");
    default(kept, "whenScaled", "Retain");
    pod::fill_in(child(child(spec, "template"), "spec"));
    let status = child(new, "status");
    default(status, "replicas", 0);
    default(status, "availableReplicas", 0);
}

pub(super) fn stateful_set(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    check_value(
        "StatefulSetSpec",
        "podManagementPolicy",
        "spec.podManagementPolicy",
        field(new, "podManagementPolicy"),
        causes,
    );
    check_count(new, "replicas", causes);
    check_template(new, None, causes);
    if let Some(old) = old {
        check_stateful_set_change(new, old, causes);
    }
}

/// Reports a change of a field that cannot change.
fn check_stateful_set_change(new: &Value, old: &Value, causes: &mut Causes) {
    let fixed = |set: &Value| {
        let mut spec = set["spec"].clone();
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|name, _| !CHANGING.contains(&name.as_str()));
        }
        spec
    };
    if fixed(new) != fixed(old) {
        let fields = "'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', \
            'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds'";
        causes.forbidden("spec", &format!("updates to statefulset spec for fields other than {fields} are forbidden"));
    }
}

pub(super) fn daemon_set_defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    let spec = child(new, "spec");
    default(spec, "revisionHistoryLimit", 10);
    let strategy = child(spec, "updateStrategy");
    default(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        default(rolling, "maxSurge", 0);
        default(rolling, "maxUnavailable", 1);
    }
    pod::fill_in(child(child(spec, "template"), "spec"));
    let status = child(new, "status");
    for number in ["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"] {
        default(status, number, 0);
    }
}

pub(super) fn daemon_set(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    check_template(new, old, causes);
}

pub(super) fn replication_controller_defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    let labels = new["spec"]["template"]["metadata"]["labels"].clone();
    let spec = child(new, "spec");
    default(spec, "replicas", 1);
    if labels.is_object() {
        default(spec, "selector", labels.clone());
        default(child(new, "metadata"), "labels", labels);
    }
    pod::fill_in(child(child(child(new, "spec"), "template"), "spec"));
    default(child(new, "status"), "replicas", 0);
}

pub(super) fn replication_controller(new: &Value, _old: Option<&Value>, causes: &mut Causes) {
    check_count(new, "replicas", causes);
    let (selector, labels) = (field(new, "selector"), &new["spec"]["template"]["metadata"]["labels"]);
    let wanted = selector.as_object().filter(|selector| !selector.is_empty());
    match wanted {
        None => causes.required("spec.selector", ""),
        Some(wanted) if wanted.iter().any(|(key, value)| labels[key.as_str()] != *value) => {
            let why = "`selector` does not match template `labels`";
            causes.invalid("spec.template.metadata.labels", labels, why);
        }
        Some(_) => {}
    }
    pod::check("spec.template.spec", &new["spec"]["template"]["spec"], &["Always"], causes);
}

pub(super) fn job_defaults(new: &mut Value, old: Option<&Value>, _serial: u64) {
    let (name, uid) = (new["metadata"]["name"].clone(), new["metadata"]["uid"].clone());
    let spec = child(new, "spec");
    job_spec_defaults(spec);
    if old.is_none() && spec["manualSelector"] != true {
        let labels = child(child(child(spec, "template"), "metadata"), "labels");
        for (label, value) in [("controller-uid", &uid), ("job-name", &name)] {
            default(labels, label, value.clone());
            default(labels, &format!("batch.kubernetes.io/{label}"), value.clone());
        }
        let selector = child(spec, "selector");
        default(child(selector, "matchLabels"), "batch.kubernetes.io/controller-uid", uid);
    }
    let labels = spec["template"]["metadata"]["labels"].clone();
    let metadata = child(new, "metadata");
    if labels.is_object() && metadata["labels"].as_object().is_none_or(Map::is_empty) {
        metadata["labels"] = labels;
    }
    child(new, "status");
}

fn job_spec_defaults(spec: &mut Value) {
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        spec["completions"] = 1.into();
    }
    default(spec, "parallelism", 1);
    default(spec, "backoffLimit", if spec["backoffLimitPerIndex"].is_null() { 6 } else { i32::MAX });
    default(spec, "completionMode", "NonIndexed");
    default(spec, "suspend", false);
    default(spec, "manualSelector", false);
    let replaced = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
    default(spec, "podReplacementPolicy", replaced);
    pod::fill_in(child(child(spec, "template"), "spec"));
}

pub(super) fn job(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    check_job("spec", &new["spec"], causes);
    if let Some(old) = old {
        for name in ["selector", "completionMode"] {
            check_immutable(&format!("spec.{name}"), field(new, name), field(old, name), causes);
        }
        if new["spec"]["suspend"] != true && old["spec"]["suspend"] != true {
            check_immutable("spec.template", field(new, "template"), field(old, "template"), causes);
        }
    }
}

pub(super) fn cron_job_defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    let spec = child(new, "spec");
    default(spec, "concurrencyPolicy", "Allow");
    default(spec, "suspend", false);
    default(spec, "successfulJobsHistoryLimit", 3);
    default(spec, "failedJobsHistoryLimit", 1);
    let job = child(spec, "jobTemplate");
    child(job, "metadata");
    let template = child(child(job, "spec"), "template");
    child(template, "metadata");
    pod::fill_in(child(template, "spec"));
    child(new, "status");
}

pub(super) fn cron_job(new: &Value, _old: Option<&Value>, causes: &mut Causes) {
    let schedule = text(&new["spec"], "schedule");
    if schedule.is_empty() {
        causes.required("spec.schedule", "");
    } else if schedule.contains("TZ") {
        let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        causes.invalid("spec.schedule", &schedule.into(), why);
    }
    check_value("CronJobSpec", "concurrencyPolicy", "spec.concurrencyPolicy", field(new, "concurrencyPolicy"), causes);
    check_job("spec.jobTemplate.spec", &new["spec"]["jobTemplate"]["spec"], causes);
}

fn check_job(path: &str, spec: &Value, causes: &mut Causes) {
    for number in ["parallelism", "completions", "backoffLimit"] {
        if spec[number].as_i64().is_some_and(|number| number < 0) {
            causes.invalid(format!("{path}.{number}"), &spec[number], "must be greater than or equal to 0");
        }
    }
    let template = &spec["template"]["spec"];
    let path = format!("{path}.template.spec");
    if template["restartPolicy"] == "Always" {
        causes.required(format!("{path}.restartPolicy"), "valid values: \"OnFailure\", \"Never\"");
    }
    pod::check(&path, template, &["Always", "OnFailure", "Never"], causes);
}

/// Reports a number of the spec that is negative.
fn check_count(new: &Value, name: &str, causes: &mut Causes) {
    let count = field(new, name);
    if count.as_i64().is_none_or(|count| count < 0) {
        causes.invalid(format!("spec.{name}"), count, "must be greater than or equal to 0");
    }
}

fn field<'a>(object: &'a Value, name: &str) -> &'a Value {
    &object["spec"][name]
}

fn check_template(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    check_selector(&new["spec"], causes);
    pod::check("spec.template.spec", &new["spec"]["template"]["spec"], &["Always"], causes);
    if let Some(old) = old {
        check_immutable("spec.selector", field(new, "selector"), field(old, "selector"), causes);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::rules::tests::{check_refused, outcome};

    fn workload(fields: Value) -> Value {
        let mut spec = json!({
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "echo"}]}},
        });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"spec": spec})
    }

    #[track_caller]
    fn check(kind: &str, new: Value, pointer: &str, expected: Value) {
        let filled = outcome(kind, new, None).unwrap();
        assert_eq!(filled.pointer(pointer), Some(&expected), "{kind} {pointer} in {filled}");
    }

    #[test]
    fn defaults_are_those_of_the_real_server() {
        check("StatefulSet", workload(json!({})), "/spec/updateStrategy/rollingUpdate/partition", 0.into());
        check("StatefulSet", workload(json!({})), "/spec/podManagementPolicy", "OrderedReady".into());
        check("DaemonSet", workload(json!({})), "/spec/updateStrategy/rollingUpdate/maxUnavailable", 1.into());
        let template = workload(json!({}))["spec"]["template"].clone();
        check("ReplicationController", json!({"spec": {"template": template}}), "/spec/selector", json!({"app": "a"}));
        let mut job = json!({"metadata": {"uid": "u"}, "spec": {"template": template}});
        job["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
        check("Job", job.clone(), "/spec/completions", 1.into());
        check("Job", job.clone(), "/metadata/labels/app", "a".into());
        check("Job", job.clone(), "/metadata/labels/job-name", "x".into());
        let own = json!({"batch.kubernetes.io/controller-uid": "u"});
        check("Job", job.clone(), "/spec/selector/matchLabels", own);
        let cron = json!({"spec": {"schedule": "@daily", "jobTemplate": {"spec": job["spec"]}}});
        check("CronJob", cron, "/spec/concurrencyPolicy", "Allow".into());
    }

    #[test]
    fn bad_workloads_are_refused() {
        let template = workload(json!({}))["spec"]["template"].clone();
        check_refused(
            "Job",
            json!({"metadata": {"uid": "u"}, "spec": {"template": template}}),
            None,
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        );
        check_refused(
            "StatefulSet",
            workload(json!({"replicas": -1})),
            None,
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        );
        let old = outcome("StatefulSet", workload(json!({})), None).unwrap();
        let mut renamed = old.clone();
        renamed["spec"]["serviceName"] = "other".into();
        check_refused(
            "StatefulSet",
            renamed,
            Some(&old),
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
             'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are \
             forbidden",
        );
        check_refused(
            "ReplicationController",
            json!({}),
            None,
            "[spec.selector: Required value, spec.template.spec.containers: Required value]",
        );
    }
}
