//! Deployments: replicas, selector and template. Nothing runs them here; the embedding program may.

use serde_json::Value;

use super::{check_count, check_immutable, child, default, list, text};
use crate::causes::Causes;
use crate::names;
use crate::names::check_labels;
use crate::selector::LabelSelector;

pub(super) fn defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    let spec = child(new, "spec");
    default(spec, "replicas", 1);
    default(spec, "revisionHistoryLimit", 10);
    default(spec, "progressDeadlineSeconds", 600);
    let strategy = child(spec, "strategy");
    default(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        default(rolling, "maxSurge", "25%");
        default(rolling, "maxUnavailable", "25%");
    }
    super::pod::fill_in(child(child(spec, "template"), "spec"));
    child(new, "status");
}

pub(super) fn validate(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    let spec = &new["spec"];
    check_count("spec.replicas", &spec["replicas"], causes);
    check_selected_template(spec, causes);
    check_strategy(&spec["strategy"], causes);
    for field in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        check_count(&format!("spec.{field}"), &spec[field], causes);
    }
    let (deadline, wait) = (&spec["progressDeadlineSeconds"], spec["minReadySeconds"].as_i64().unwrap_or_default());
    if deadline.as_i64().is_some_and(|deadline| deadline <= wait) {
        causes.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds");
    }
    if let Some(old) = old {
        check_immutable("spec.selector", &spec["selector"], &old["spec"]["selector"], causes);
    }
}

/// Reports the errors of a selector, and of the template whose Pods it selects.
pub(super) fn check_selected_template(spec: &Value, causes: &mut Causes) {
    if check_selector(spec, causes) {
        super::pod::check_template("spec.template", &spec["template"], causes);
    }
}

fn check_strategy(strategy: &Value, causes: &mut Causes) {
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "type") {
        "Recreate" if rolling.is_object() => {
            causes.forbidden("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => check_rolling_update(rolling, causes),
        _ => {
            let shown = format!(r#"{{"Type":{},"RollingUpdate":null}}"#, strategy["type"]);
            causes.unsupported_shown("spec.strategy", &shown, r#""Recreate", "RollingUpdate""#);
        }
    }
}

pub(super) const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' \
    (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

fn check_rolling_update(rolling: &Value, causes: &mut Causes) {
    let amounts = ["maxUnavailable", "maxSurge"].map(|field| {
        let (value, path) = (&rolling[field], format!("spec.strategy.rollingUpdate.{field}"));
        match (value.as_i64(), value.as_str()) {
            (Some(count), _) => {
                if count < 0 {
                    causes.invalid(&path, value, "must be greater than or equal to 0");
                }
                Some(count)
            }
            (None, Some(text)) => {
                let percent = percent(text);
                if percent.is_none() {
                    causes.invalid(&path, value, PERCENT);
                }
                percent
            }
            (None, None) => None,
        }
    });
    let unavailable = (&rolling["maxUnavailable"], "spec.strategy.rollingUpdate.maxUnavailable");
    // An invalid percentage counts as zero.
    if amounts.iter().all(|amount| amount.unwrap_or_default() == 0) {
        causes.invalid(unavailable.1, unavailable.0, "may not be 0 when `maxSurge` is 0");
    }
    if unavailable.0.as_str().and_then(percent).is_some_and(|percent| percent > 100) {
        causes.invalid(unavailable.1, unavailable.0, "must not be greater than 100%");
    }
}

/// The number of a percentage such as `25%`; one that exceeds the type is its maximum.
pub(super) fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%').filter(|digits| !digits.is_empty())?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().unwrap_or(i64::MAX))
}

/// Reports the errors of a selector. Returns `false` if it selects nothing, not even by mistake.
pub(super) fn check_selector(spec: &Value, causes: &mut Causes) -> bool {
    const FIELD: &str = "spec.selector";
    const NO_MATCH: &str = "`selector` does not match template `labels`";
    let selector = &spec["selector"];
    let labels = &spec["template"]["metadata"]["labels"];
    let before = causes.0.len();
    if selector.is_object() {
        check_requirements(FIELD, selector, causes);
    } else {
        causes.required(FIELD, "");
        causes.invalid("spec.template.metadata.labels", labels, NO_MATCH);
        return true;
    }
    let is_empty = |part: &str| match &selector[part] {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    if is_empty("matchLabels") && is_empty("matchExpressions") {
        causes.invalid(FIELD, selector, "empty selector is invalid for deployment");
        return true;
    }
    match LabelSelector::from_object(selector) {
        _ if causes.0.len() > before => {
            causes.invalid(FIELD, selector, "invalid label selector");
            return false;
        }
        Ok(parsed) if !parsed.matches(labels) => {
            causes.invalid("spec.template.metadata.labels", labels, NO_MATCH);
        }
        Ok(_) | Err(_) => {}
    }
    true
}

/// Reports the errors of the labels and the expressions of a selector.
pub(super) fn check_requirements(field: &str, selector: &Value, causes: &mut Causes) {
    check_labels(&format!("{field}.matchLabels"), &selector["matchLabels"], causes);
    for (nth, requirement) in list(selector, "matchExpressions").iter().enumerate() {
        let field = |name: &str| format!("{field}.matchExpressions[{nth}].{name}");
        let values = list(requirement, "values");
        match text(requirement, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                causes.required(field("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                causes.forbidden(field("values"), why);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => causes.invalid(field("operator"), &requirement["operator"], "not a valid selector operator"),
        }
        causes.all(&field("key"), &requirement["key"], names::qualified(text(requirement, "key")));
        for (at, value) in values.iter().enumerate() {
            let text = value.as_str().unwrap_or_default();
            causes.all(&field(&format!("values[{at}]")), value, names::label_value(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::tests::{check_refused, outcome};

    fn deployment(app: &str) -> Value {
        json!({"spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "echo", "ports": [{"containerPort": 80}]}]}},
        }})
    }

    #[test]
    fn a_deployment_has_one_replica_by_default() {
        let filled = outcome("Deployment", deployment("a"), None).unwrap();
        assert_eq!(filled["spec"]["replicas"], 1);
        assert_eq!(filled["spec"]["template"]["spec"]["containers"][0]["ports"][0]["protocol"], "TCP");
        let mut none = deployment("a");
        none["spec"]["replicas"] = 0.into();
        assert_eq!(outcome("Deployment", none, None).unwrap()["spec"]["replicas"], 0);
    }

    #[test]
    fn a_rolling_update_must_be_able_to_progress() {
        let check = |rolling: Value, why: &str| {
            let mut bad = deployment("a");
            bad["spec"]["strategy"] = json!({"rollingUpdate": rolling});
            check_refused("Deployment", bad, None, &format!("spec.strategy.rollingUpdate.{why}"));
        };
        let nothing = "maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0";
        check(json!({"maxSurge": 0, "maxUnavailable": 0}), nothing);
        check(json!({"maxSurge": "0%", "maxUnavailable": 0}), nothing);
        check(json!({"maxSurge": -1}), "maxSurge: Invalid value: -1: must be greater than or equal to 0");
        check(
            json!({"maxUnavailable": "101%"}),
            "maxUnavailable: Invalid value: \"101%\": must not be greater than 100%",
        );
        check(
            json!({"maxSurge": "some"}),
            "maxSurge: Invalid value: \"some\": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
        );
    }

    #[test]
    fn bad_deployments_are_refused() {
        check_refused(
            "Deployment",
            deployment("b"),
            None,
            "spec.template.metadata.labels: Invalid value: {\"app\":\"b\"}: `selector` does not match template `labels`",
        );
        let mut bare = deployment("a");
        bare["spec"]["template"]["spec"]["containers"] = json!([{"name": "c"}]);
        check_refused("Deployment", bare, None, "spec.template.spec.containers[0].image: Required value");
        check_refused(
            "Deployment",
            json!({}),
            None,
            "[spec.selector: Required value, spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`, spec.template.spec.containers: Required value]",
        );
        let old = outcome("Deployment", deployment("a"), None).unwrap();
        let mut moved = deployment("b");
        moved["spec"]["selector"]["matchLabels"]["app"] = "b".into();
        check_refused(
            "Deployment",
            moved,
            Some(&old),
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"b\"}}: field is immutable",
        );
    }
}
