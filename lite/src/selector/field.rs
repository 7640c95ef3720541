//! Field selectors: `metadata.name=x,type!=y` over the few fields that a kind allows.

use std::borrow::Cow;

use super::marks::Selectable;
use crate::failure::Failure;
use crate::kind::Kind;

/// All of these must hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<Requirement>);

#[derive(Clone, Debug)]
struct Requirement {
    field: String,
    value: String,
    equal: bool,
}

impl Fields {
    pub(crate) fn parse(kind: &Kind, text: &str) -> Result<Self, Failure> {
        let mut requirements = Vec::new();
        for term in split(text).into_iter().filter(|term| !term.is_empty()) {
            let (field, value, equal) = if let Some((field, value)) = term.split_once("!=") {
                (field, value, false)
            } else if let Some((field, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
                (field, value, true)
            } else {
                let why = format!("invalid selector: '{text}'; can't understand '{term}'");
                return Err(Failure::bad_request(why));
            };
            let namespaced = field == "metadata.namespace" && kind.namespaced();
            if field != "metadata.name" && !namespaced && kind.fields.iter().all(|known| known != field) {
                return Err(Failure::bad_request(unknown_field(kind, field)));
            }
            requirements.push(Requirement { field: field.to_owned(), value: unescape(value), equal });
        }
        Ok(Self(requirements))
    }

    /// The one name that can match, if the selector says so.
    pub(crate) fn name(&self) -> Option<&str> {
        self.exact("metadata.name")
    }

    /// The one namespace that can match, if the selector says so.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.exact("metadata.namespace")
    }

    fn exact(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|one| one.equal && one.field == field).map(|one| one.value.as_str())
    }

    pub(super) fn matches(&self, object: &impl Selectable) -> bool {
        self.0.iter().all(|one| (object.field(&one.field) == one.value) == one.equal)
    }

    /// Whether the name and the namespace of an object are all that they ask for.
    pub(super) fn only_names(&self) -> bool {
        self.0.iter().all(|one| matches!(&*one.field, "metadata.name" | "metadata.namespace"))
    }
}

/// The real server has two messages: kinds with more selectable fields than names have one of their own.
fn unknown_field(kind: &Kind, field: &str) -> String {
    if kind.built_in().is_some() && kind.fields.is_empty() {
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else {
        format!("field label not supported: {field}")
    }
}

/// The text of a field, where `at` gives the value at a path; an absent value is the empty string, as in the real
/// server.
pub(super) fn read<'a>(mut at: impl FnMut(&str) -> Option<Cow<'a, str>>, field: &str) -> Cow<'a, str> {
    match field {
        // An Event's source is the component that told it, and of newer ones the controller.
        "source" => at("source.component").filter(|text| !text.is_empty()).or_else(|| at("reportingComponent")),
        // A Node takes Pods unless it says otherwise.
        "spec.unschedulable" => at(field).or(Some(Cow::Borrowed("false"))),
        _ => at(field),
    }
    .unwrap_or_default()
}

/// Splits at commas that are not escaped by a backslash.
fn split(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, letter) in text.char_indices() {
        if letter == ',' && !escaped {
            terms.push(&text[start..at]);
            start = at + 1;
        }
        escaped = letter == '\\' && !escaped;
    }
    terms.push(&text[start..]);
    terms
}

fn unescape(value: &str) -> String {
    let mut letters = value.chars();
    let mut plain = String::new();
    while let Some(letter) = letters.next() {
        plain.push(if letter == '\\' { letters.next().unwrap_or('\\') } else { letter });
    }
    plain
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kind::KindId;

    fn kind(name: &str) -> KindId {
        KindId::built_in(name).unwrap()
    }

    #[track_caller]
    fn check(of: &str, text: &str, object: Value, expected: bool) {
        assert_eq!(Fields::parse(kind(of).description(), text).unwrap().matches(&object), expected);
    }

    #[test]
    fn fields_select() {
        let secret = json!({"metadata": {"name": "a", "namespace": "n"}, "type": "kubernetes.io/tls"});
        check("Secret", "", secret.clone(), true);
        check("Secret", "metadata.name=a", secret.clone(), true);
        check("Secret", "metadata.name==a,metadata.namespace=n", secret.clone(), true);
        check("Secret", "metadata.name!=a", secret.clone(), false);
        check("Secret", "type=kubernetes.io/tls", secret.clone(), true);
        check("Secret", "type!=kubernetes.io/tls", secret.clone(), false);
        check("Secret", r"type=kubernetes.io\/tls", secret, true);
        check("Event", "involvedObject.name=x,involvedObject.uid=", json!({"involvedObject": {"name": "x"}}), true);
        check(
            "Event",
            "source=tidegate",
            json!({"source": {"component": "tidegate"}, "reportingComponent": "a"}),
            true,
        );
        check("Event", "source=tidegate", json!({"source": {"component": ""}, "reportingComponent": "tidegate"}), true);
        check("Event", "source=tidegate", json!({"source": {}}), false);
        check("Node", "spec.unschedulable=false", json!({"spec": {}}), true);
        check("Node", "spec.unschedulable=true", json!({"spec": {"unschedulable": true}}), true);
    }

    #[test]
    fn fields_that_a_kind_does_not_offer_are_refused() {
        for (of, text) in [
            ("Service", "spec.ports=1"),
            ("Namespace", "metadata.namespace=a"),
            ("Secret", "type"),
            ("Ingress", "type=x"),
        ] {
            assert_eq!(Fields::parse(kind(of).description(), text).unwrap_err().code.as_u16(), 400, "{text}");
        }
    }

    #[test]
    fn one_name_is_recognised() {
        let fields = Fields::parse(kind("Secret").description(), "metadata.name=a,type!=b").unwrap();
        assert_eq!(fields.name(), Some("a"));
        assert_eq!(Fields::parse(kind("Secret").description(), "metadata.name!=a").unwrap().name(), None);
    }
}
