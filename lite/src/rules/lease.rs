//! Leases: a duration and a count of transitions.

use serde_json::Value;

use crate::causes::Causes;

pub(super) fn validate(new: &Value, _old: Option<&Value>, causes: &mut Causes) {
    let spec = &new["spec"];
    let duration = &spec["leaseDurationSeconds"];
    if duration.as_i64().is_some_and(|seconds| seconds <= 0) {
        causes.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0");
    }
    super::check_count("spec.leaseTransitions", &spec["leaseTransitions"], causes);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::tests::{check_refused, outcome};

    #[test]
    fn leases_have_positive_durations() {
        assert!(outcome("Lease", json!({"spec": {"leaseDurationSeconds": 1, "leaseTransitions": 0}}), None).is_ok());
        check_refused(
            "Lease",
            json!({"spec": {"leaseDurationSeconds": 0}}),
            None,
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        );
        check_refused(
            "Lease",
            json!({"spec": {"leaseTransitions": -1}}),
            None,
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
        );
    }
}
