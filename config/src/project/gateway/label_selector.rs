//! Label selectors (`metav1.LabelSelector`), and the labels by which the selectors of an object are found.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::reference::checked;
use crate::finding::printable;
use crate::project::field::{InvalidValue, read};

/// Labels by key.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// The maximum number of requirements of one selector, and of values of one requirement. The API has no limit.
const ENTRIES_MAX: usize = 256;

/// Requirements on the labels of an object. All must hold; without any, every object is selected.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LabelSelector(Box<[Requirement]>);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Requirement {
    key: Arc<str>,
    operator: Operator,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Operator {
    In(Box<[Arc<str>]>),
    NotIn(Box<[Arc<str>]>),
    Exists,
    DoesNotExist,
}

/// A label that an object must have to be selected.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LabelTerm {
    /// None in particular.
    Any,
    /// One with this key.
    Key(Arc<str>),
    /// This one.
    Label(Arc<str>, Arc<str>),
}

impl LabelTerm {
    /// The terms that are true of an object with these labels.
    pub fn of(labels: &Labels) -> impl Iterator<Item = Self> {
        let of_label = |(key, value): (&Arc<str>, &Arc<str>)| {
            [Self::Key(Arc::clone(key)), Self::Label(Arc::clone(key), Arc::clone(value))]
        };
        std::iter::once(Self::Any).chain(labels.iter().flat_map(of_label))
    }
}

/// The label that every Secret of Authorino has: it tells none from another.
const MANAGED_BY: &str = "authorino.kuadrant.io/managed-by";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct SelectorJson<'a> {
    match_labels: Option<Labels>,
    #[serde(borrow)]
    match_expressions: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct ExpressionJson {
    key: Option<Arc<str>>,
    operator: Option<String>,
    values: Option<Vec<Arc<str>>>,
}

impl LabelSelector {
    /// Reads a selector, whole or not at all: without one of its requirements it would select more objects.
    pub(in crate::project) fn read(raw: &RawValue, field: &str) -> Result<Self, InvalidValue> {
        let json: SelectorJson<'_> = read(raw, field)?;
        let labels = json.match_labels.unwrap_or_default();
        let expressions = json.match_expressions.unwrap_or_default();
        if labels.len() + expressions.len() > ENTRIES_MAX {
            return Err(too_many(field, labels.len() + expressions.len(), "requirements"));
        }
        let labels = labels.into_iter().map(|(key, value)| Requirement { key, operator: Operator::In([value].into()) });
        let expressions = expressions.into_iter().enumerate();
        let expressions =
            expressions.map(|(number, raw)| requirement(raw, &format!("{field}.matchExpressions[{number}]")));
        Ok(Self(labels.map(Ok).chain(expressions).collect::<Result<_, _>>()?))
    }

    /// Returns `true` if it has no requirements, and so selects every object.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Terms of which one is true of each object that is selected, so that selectors are found by the labels of an
    /// object.
    #[must_use]
    pub fn terms(&self) -> Vec<LabelTerm> {
        let is_common = |requirement: &&Requirement| *requirement.key == *MANAGED_BY;
        let narrow = self.0.iter().filter(|it| matches!(it.operator, Operator::In(_) | Operator::Exists));
        let width = |requirement: &&Requirement| match &requirement.operator {
            Operator::In(values) => values.len(),
            Operator::NotIn(_) | Operator::Exists | Operator::DoesNotExist => usize::MAX,
        };
        let Some(Requirement { key, operator }) = narrow.min_by_key(|it| (is_common(it), width(it))) else {
            return vec![LabelTerm::Any];
        };
        match operator {
            Operator::In(values) => {
                values.iter().map(|value| LabelTerm::Label(Arc::clone(key), Arc::clone(value))).collect()
            }
            Operator::NotIn(_) | Operator::Exists | Operator::DoesNotExist => vec![LabelTerm::Key(Arc::clone(key))],
        }
    }

    /// Returns `true` if an object with these labels is selected. An absent label has no value.
    #[must_use]
    pub fn selects(&self, labels: &Labels) -> bool {
        self.0.iter().all(|Requirement { key, operator }| {
            let value = labels.get(key);
            match operator {
                Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }
}

fn requirement(raw: &RawValue, field: &str) -> Result<Requirement, InvalidValue> {
    let json: ExpressionJson = read(raw, field)?;
    let key = checked(json.key, field, "key", |key| if key.is_empty() { Err("is empty") } else { Ok(()) })?;
    let values = json.values.unwrap_or_default();
    if values.len() > ENTRIES_MAX {
        return Err(too_many(&format!("{field}.values"), values.len(), "values"));
    }
    let text = json.operator.unwrap_or_default();
    let fault = |below: &str, value: &str, why: &str| InvalidValue {
        field: format!("{field}.{below}"),
        value: printable(value),
        why: why.to_owned(),
    };
    let operator = match (&*text, values.is_empty()) {
        ("In", false) => Operator::In(values.into()),
        ("NotIn", false) => Operator::NotIn(values.into()),
        ("Exists", true) => Operator::Exists,
        ("DoesNotExist", true) => Operator::DoesNotExist,
        ("In" | "NotIn", true) => return Err(fault("values", &text, "needs values")),
        ("Exists" | "DoesNotExist", false) => return Err(fault("values", &text, "takes no values")),
        (_, _) => return Err(fault("operator", &text, "is not In, NotIn, Exists or DoesNotExist")),
    };
    Ok(Requirement { key, operator })
}

fn too_many(field: &str, number: usize, what: &str) -> InvalidValue {
    let why = format!("exceed the limit of {ENTRIES_MAX}");
    InvalidValue { field: field.to_owned(), value: format!("{number} {what}"), why }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Requirement { key, operator }) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            match operator {
                Operator::In(values) => write!(f, "{comma}{key} in ({})", values.join(","))?,
                Operator::NotIn(values) => write!(f, "{comma}{key} notin ({})", values.join(","))?,
                Operator::Exists => write!(f, "{comma}{key}")?,
                Operator::DoesNotExist => write!(f, "{comma}!{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json, value::to_raw_value};

    use super::*;

    #[track_caller]
    fn check(selector: &Value, labels: &Value, want: bool) {
        let selector = LabelSelector::read(&to_raw_value(selector).unwrap(), "selector").unwrap();
        let labels: Labels = serde_json::from_value(labels.clone()).unwrap();
        assert_eq!(selector.selects(&labels), want, "{selector} of {labels:?}");
    }

    #[test]
    fn all_requirements_must_hold() {
        let shop = json!({"team": "shop", "tier": "1"});
        check(&json!({}), &json!({}), true);
        check(&json!({"matchLabels": {"team": "shop"}}), &shop, true);
        check(&json!({"matchLabels": {"team": "shop", "tier": "2"}}), &shop, false);
        let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "team", "operator": operator, "values": values}]});
        for (operator, values, here, absent) in [
            ("In", &["blog", "shop"] as &[&str], true, false),
            ("In", &["blog"], false, false),
            ("NotIn", &["blog"], true, true),
            ("NotIn", &["shop"], false, true),
            ("Exists", &[], true, false),
            ("DoesNotExist", &[], false, true),
        ] {
            check(&expression(operator, values), &shop, here);
            check(&expression(operator, values), &json!({"tier": "1"}), absent);
        }
    }

    #[test]
    fn a_selector_is_found_by_the_labels_of_what_it_selects() {
        let check = |selector: Value, want: &str| {
            let selector = LabelSelector::read(&to_raw_value(&selector).unwrap(), "selector").unwrap();
            assert_eq!(format!("{:?}", selector.terms()), want, "{selector}");
            for labels in [json!({}), json!({"a": "1"}), json!({"a": "2", "b": "1"}), json!({"a": "1", "c": "1"})] {
                let labels: Labels = serde_json::from_value(labels).unwrap();
                let is_found = LabelTerm::of(&labels).any(|term| selector.terms().contains(&term));
                assert!(is_found || !selector.selects(&labels), "{selector} of {labels:?}");
            }
        };
        let expression =
            |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        check(json!({"matchLabels": {"a": "1"}}), r#"[Label("a", "1")]"#);
        check(json!({"matchLabels": {"a": "1", MANAGED_BY: "authorino"}}), r#"[Label("a", "1")]"#);
        check(json!({"matchLabels": {MANAGED_BY: "x"}}), r#"[Label("authorino.kuadrant.io/managed-by", "x")]"#);
        check(json!({"matchExpressions": [expression("b", "Exists", &[])]}), r#"[Key("b")]"#);
        let both = json!([expression("b", "Exists", &[]), expression("a", "In", &["1", "2"])]);
        check(json!({"matchExpressions": both}), r#"[Label("a", "1"), Label("a", "2")]"#);
        let others = json!([expression("b", "NotIn", &["1"]), expression("c", "DoesNotExist", &[])]);
        check(json!({"matchExpressions": others}), "[Any]");
        check(json!({}), "[Any]");
    }

    #[track_caller]
    fn check_refused(selector: &Value, field: &str) {
        let invalid = LabelSelector::read(&to_raw_value(selector).unwrap(), "selector").unwrap_err();
        assert_eq!(invalid.field, field, "{selector}");
    }

    #[test]
    fn a_selector_with_an_invalid_requirement_is_refused() {
        let with = |expression: Value| json!({"matchLabels": {"a": "b"}, "matchExpressions": [expression]});
        check_refused(&json!([]), "selector");
        check_refused(&json!({"matchLabels": {"a": 1}}), "selector.matchLabels.a");
        check_refused(&with(json!({"operator": "Exists"})), "selector.matchExpressions[0].key");
        check_refused(&with(json!({"key": "a", "operator": "Is"})), "selector.matchExpressions[0].operator");
        check_refused(&with(json!({"key": "a", "operator": "In"})), "selector.matchExpressions[0].values");
        check_refused(
            &with(json!({"key": "a", "operator": "Exists", "values": ["b"]})),
            "selector.matchExpressions[0].values",
        );
        let many: Vec<Value> =
            (0..257).map(|number| json!({"key": number.to_string(), "operator": "Exists"})).collect();
        check_refused(&json!({"matchExpressions": many}), "selector");
        let many: Vec<String> = (0..257).map(|number| number.to_string()).collect();
        check_refused(
            &with(json!({"key": "a", "operator": "In", "values": many})),
            "selector.matchExpressions[0].values",
        );
    }
}
