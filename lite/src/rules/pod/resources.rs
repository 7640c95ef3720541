//! Limits and requests of containers.

use serde_json::{Map, Value};

use crate::causes::Causes;
use crate::names;
use crate::quantity::{NANOS, Quantity};

/// The resources of containers that have no domain in their names, besides `hugepages-…`.
const STANDARD: &[&str] = &["cpu", "memory", "ephemeral-storage"];

/// Reports resources that containers cannot have, and requests beyond limits.
pub(super) fn check(path: &str, resources: &Value, causes: &mut Causes) {
    let part = |name: &str| resources[name].as_object().into_iter().flat_map(Map::iter);
    for (name, amount) in part("limits") {
        check_amount(&format!("{path}.limits[{name}]"), name, amount, causes);
    }
    for (name, amount) in part("requests") {
        check_amount(&format!("{path}.requests[{name}]"), name, amount, causes);
        let limit = &resources["limits"][name.as_str()];
        let (asked, most) = (nanos(amount), nanos(limit));
        let overcommits = may_overcommit(name);
        let field = format!("{path}.requests");
        let shown = limit.as_str().unwrap_or_default();
        if limit.is_null() {
            if !overcommits {
                causes.required(format!("{path}.limits"), "Limit must be set for non overcommitable resources");
            }
        } else if !overcommits && asked != most {
            causes.invalid(field, amount, &format!("must be equal to {name} limit of {shown}"));
        } else if asked > most {
            causes.invalid(field, amount, &format!("must be less than or equal to {name} limit of {shown}"));
        }
    }
    let has = |wanted: fn(&str) -> bool| part("limits").chain(part("requests")).any(|(name, _)| wanted(name));
    if has(is_huge_page) && !has(|name| matches!(name, "cpu" | "memory")) {
        causes.forbidden(path, "HugePages require cpu or memory");
    }
}

fn check_amount(field: &str, name: &str, amount: &Value, causes: &mut Causes) {
    let shown = Value::from(name);
    let complaints = names::qualified(name);
    let is_known = STANDARD.contains(&name) || is_huge_page(name);
    if complaints.is_empty() && !name.contains('/') && !is_known {
        causes.invalid(field, &shown, "must be a standard resource type or fully qualified");
    }
    causes.all(field, &shown, complaints);
    if !name.contains('/') && !is_known {
        causes.invalid(field, &shown, "must be a standard resource for containers");
    }
    let nanos = nanos(amount);
    if nanos < 0 {
        causes.invalid(field, amount, "must be greater than or equal to 0");
    }
    if (name.contains('/') || is_huge_page(name)) && nanos % NANOS != 0 {
        causes.invalid(field, amount, "must be an integer");
    }
}

fn nanos(amount: &Value) -> i128 {
    amount.as_str().and_then(|text| Quantity::parse(text).ok()).map_or(0, |quantity| quantity.nanos)
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Devices and large pages are not promised twice.
fn may_overcommit(name: &str) -> bool {
    !is_huge_page(name) && !name.contains('/')
}
