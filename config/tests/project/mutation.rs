//! Invalid input: for any bytes, `project` returns, and returns the same result each time.

use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use tidegate_config::object::Kind;
use tidegate_config::project::{Object, Projected, project};

use crate::manifest;

static MANIFESTS: LazyLock<Vec<(Kind, Value)>> =
    LazyLock::new(|| manifest::all().into_iter().map(|manifest| (manifest.kind, manifest.json)).collect());

/// The policies, and the places in each.
static POLICIES: LazyLock<Vec<(Kind, Value, Vec<String>)>> = LazyLock::new(|| {
    let policies = MANIFESTS.iter().filter(|(kind, _)| kind.is_inherited_policy());
    let places = |json| {
        let mut places = Vec::new();
        pointers(json, "", &mut places);
        places
    };
    policies.map(|(kind, json)| (*kind, json.clone(), places(json))).collect()
});

/// The maximum number of findings of one object.
const FINDINGS_MAX: usize = 257;

#[track_caller]
fn check(kind: Kind, bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(Projected { meta, object, findings, addresses, status }) = project(kind, bytes) else {
        return Ok(());
    };
    prop_assert_eq!(meta.object.kind, kind);
    prop_assert!(!meta.object.name.name.is_empty() && !meta.resource_version.is_empty());
    prop_assert!(object.is_some() || !findings.is_empty(), "an object that cannot be read has a finding");
    prop_assert!(findings.len() <= FINDINGS_MAX);
    for finding in &findings {
        prop_assert_eq!(&finding.object, &meta.object);
        prop_assert!(finding.to_string().len() < 4096, "{}", finding);
    }
    let again = project(kind, bytes).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(object, again.object);
    prop_assert_eq!(findings, again.findings);
    prop_assert_eq!(addresses, again.addresses);
    prop_assert_eq!(status, again.status);
    Ok(())
}

/// Every rule that an AuthPolicy has is an entry, in some form, unless the policy as a whole closes its target.
fn check_closed(kind: Kind, json: &Value) -> Result<(), TestCaseError> {
    if kind != Kind::AuthPolicy {
        return Ok(());
    }
    let Ok(Projected { object: Some(Object::AuthPolicy(policy)), .. }) = project(kind, json.to_string().as_bytes())
    else {
        return Ok(());
    };
    let Ok(block) = &policy.rules else { return Ok(()) };
    let spec = &json["spec"];
    let blocks = [&spec["defaults"], &spec["overrides"], spec];
    let rules = blocks.into_iter().find(|block| block.is_object()).map(|block| &block["rules"]).unwrap();
    for section in ["authentication", "metadata", "authorization"] {
        for name in rules[section].as_object().into_iter().flat_map(|section| section.keys()) {
            let key = format!("{section}#{name}");
            prop_assert!(block.entries.contains_key(&*key), "{} of {}", key, json);
        }
    }
    let answers = ["unauthenticated", "unauthorized"];
    for name in answers.into_iter().filter(|name| !rules["response"][name].is_null()) {
        prop_assert!(block.entries.contains_key(&*format!("response.{name}")), "{} of {}", name, json);
    }
    Ok(())
}

/// All places in a value, as JSON pointers.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                pointers(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), out);
            }
        }
        Value::Array(items) => {
            for (number, value) in items.iter().enumerate() {
                pointers(value, &format!("{at}/{number}"), out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn replacement() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        Just(json!([null, {}, [], "", 0])),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0i64..70_000).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[*./{}%a-z0-9:,_-]{0,300}".prop_map(Value::from),
        "[0-9]{0,30}(ms|s|m|h|k|g)?[0-9]{0,30}(ms|s|m|h|k|g)?".prop_map(Value::from),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes(which in any::<Index>(), flips in vec((any::<Index>(), any::<u8>()), 1..6)) {
        let (kind, json) = which.get(&MANIFESTS);
        let mut bytes = json.to_string().into_bytes();
        for (place, byte) in flips {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        check(*kind, &bytes)?;
    }

    #[test]
    fn replaced_values(which in any::<Index>(), edits in vec((any::<Index>(), replacement()), 1..4)) {
        let (kind, json) = which.get(&MANIFESTS);
        let mut json = json.clone();
        for (place, value) in edits {
            let mut places = Vec::new();
            pointers(&json, "", &mut places);
            if let Some(old) = json.pointer_mut(&places[place.index(places.len())]) {
                *old = value;
            }
        }
        check(*kind, json.to_string().as_bytes())?;
    }

    #[test]
    fn truncated_bytes(which in any::<Index>(), length in any::<Index>()) {
        let (kind, json) = which.get(&MANIFESTS);
        let bytes = json.to_string().into_bytes();
        check(*kind, &bytes[..length.index(bytes.len())])?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Each value takes the place of others in turn: 10,240 policies, or 40 times `PROPTEST_CASES`.
    #[test]
    fn replaced_values_of_policies(which in any::<Index>(), edits in vec(any::<Index>(), 40), value in replacement()) {
        let (kind, json, places) = which.get(&POLICIES);
        let mut json = json.clone();
        for edit in edits {
            let place = edit.get(places);
            let old = json.pointer_mut(place).map(|at| std::mem::replace(at, value.clone()));
            check(*kind, json.to_string().as_bytes())?;
            check_closed(*kind, &json)?;
            json.pointer_mut(place).into_iter().zip(old).for_each(|(at, old)| *at = old);
        }
    }
}

#[test]
fn deep_nesting_is_handled() {
    for kind in Kind::ALL {
        for depth in [100, 1000, 100_000] {
            let deep = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
            let text = format!(
                r#"{{"metadata":{{"name":"a","resourceVersion":"1"}},"spec":{deep},"status":{deep},"data":{deep},"endpoints":{deep}}}"#
            );
            check(kind, text.as_bytes()).unwrap();
        }
    }
}
