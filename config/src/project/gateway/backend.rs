//! Backends of routes and their weights.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::reference::{Form, GroupKind, ObjectReference, Unreadable, port, reference};
use crate::finding::{field_name, printable};
use crate::object::{Kind, ObjectName};
use crate::project::field::{FindingList, InvalidValue, read};

/// The maximum number of backends read of one rule.
pub(super) const BACKENDS_MAX: usize = 16;
/// The greatest weight.
const WEIGHT_MAX: i64 = 1_000_000;

/// A reference to a backend.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BackendRef {
    /// A Service, or another object.
    pub object: ObjectReference,
    /// Its port, which a Service requires.
    pub port: Option<u16>,
}

/// A share of the requests or connections of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WeightedBackend {
    /// The field, such as `spec.rules[0].backendRefs[1]`.
    pub field: Arc<str>,
    /// The backend. One that cannot be read keeps its share: HTTP is answered 500, connections are closed and datagrams
    /// dropped.
    pub to: Result<BackendRef, Unreadable>,
    /// The share: the weight divided by the sum of all.
    pub weight: u32,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct PortJson {
    port: Option<i64>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct WeightJson<'a> {
    #[serde(borrow)]
    weight: Option<&'a RawValue>,
}

/// Reads a reference to a backend.
pub(super) fn backend_ref(raw: &RawValue, field: &str, own: &ObjectName) -> Result<BackendRef, InvalidValue> {
    let object = reference(raw, field, own, Form::of(Kind::Service))?;
    let json: PortJson = read(raw, field)?;
    let port = json.port.map(|number| port(number, &format!("{field}.port"))).transpose()?;
    if port.is_none() && object.kind == GroupKind::Known(Kind::Service) {
        let why = "is a Service, and is named without a port".to_owned();
        return Err(InvalidValue { field: format!("{field}.port"), value: printable(&object.name.to_string()), why });
    }
    Ok(BackendRef { object, port })
}

/// Adds the finding about an unreadable backend: its consequence depends on the kind of route.
pub(super) type Report = fn(&mut FindingList, &InvalidValue) -> Unreadable;

/// Reads a share.
pub(super) fn weighted(
    raw: &RawValue,
    field: &str,
    own: &ObjectName,
    findings: &mut FindingList,
    report: Report,
) -> WeightedBackend {
    let to = backend_ref(raw, field, own).map_err(|invalid| report(findings, &invalid));
    WeightedBackend { field: field_name(field), to, weight: weight(raw, field, findings) }
}

/// The entries of `backendRefs`. A value that is not a list counts as one backend that cannot be read.
pub(super) fn backends<T: From<WeightedBackend>>(
    raw: Option<&RawValue>,
    field: &str,
    findings: &mut FindingList,
    report: Report,
    mut entry: impl FnMut(&RawValue, &str, &mut FindingList) -> T,
) -> Box<[T]> {
    let Some(raw) = raw else { return Box::default() };
    match read(raw, field) {
        Ok(list) => {
            let entries = findings.entries(Some(list), BACKENDS_MAX, field);
            entries.map(|(field, raw)| entry(raw, &field, findings)).collect()
        }
        Err(invalid) => {
            let to = Err(report(findings, &invalid));
            [WeightedBackend { field: field_name(field), to, weight: 1 }.into()].into()
        }
    }
}

/// A weight that cannot be read takes the default. An entry that is not an object has a finding already.
fn weight(raw: &RawValue, field: &str, findings: &mut FindingList) -> u32 {
    let Some(raw) = read::<WeightJson<'_>>(raw, field).ok().and_then(|json| json.weight) else { return 1 };
    let field = format!("{field}.weight");
    match read::<i64>(raw, &field) {
        Ok(number) => match u32::try_from(number) {
            Ok(weight) if number <= WEIGHT_MAX => return weight,
            _ => findings.ignored(&field, &number.to_string(), format_args!("is not between 0 and {WEIGHT_MAX}")),
        },
        Err(invalid) => findings.ignored(&invalid.field, &invalid.value, &invalid.why),
    }
    1
}
