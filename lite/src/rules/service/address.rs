//! The addresses of Services and their families. This server has one family, IPv4, as a cluster of one stack.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::super::{default, list, text};
use crate::causes::Causes;
use crate::fields::schema;
use crate::names;

/// Made-up addresses are from 10.96.0.0/12, kubeadm's default for Services.
const CLUSTER_NET: u32 = 0x0a60_0000;
const CLUSTER_NET_SIZE: u64 = 1 << 20;

/// Returns `true` if a Service asks for no address.
pub(super) fn is_headless(spec: &Value) -> bool {
    spec["type"] == "ClusterIP" && spec["clusterIP"] == "None"
}

fn has_no_selector(spec: &Value) -> bool {
    spec["selector"].as_object().is_none_or(serde_json::Map::is_empty)
}

/// Fills in addresses and families. An update keeps those that it leaves out.
pub(super) fn fill_in(spec: &mut Value, old_spec: &Value, serial: u64) {
    let unchanged = |spec: &Value, field: &str| !old_spec.is_null() && spec[field] == old_spec[field];
    if list(spec, "clusterIPs").is_empty() && !text(spec, "clusterIP").is_empty() {
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    }
    // One address is named by two fields; a change of one of them means both.
    if !unchanged(spec, "clusterIP") && !text(spec, "clusterIP").is_empty() && unchanged(spec, "clusterIPs") {
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    }
    // No address is given to a family that is refused below.
    let is_refused = list(spec, "ipFamilies").first().is_some_and(|family| family != "IPv4");
    if is_refused && old_spec["clusterIP"].is_null() {
        default(spec, "ipFamilyPolicy", "SingleStack");
        return;
    }
    if text(spec, "clusterIP").is_empty() && (list(spec, "clusterIPs").is_empty() || unchanged(spec, "clusterIPs")) {
        let kept = text(old_spec, "clusterIP");
        spec["clusterIP"] = if kept.is_empty() { address(serial).into() } else { kept.into() };
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    }
    let policy = match old_spec["ipFamilyPolicy"].as_str() {
        Some(policy) => policy,
        None if spec["clusterIP"] == "None" && has_no_selector(spec) => "RequireDualStack",
        None => "SingleStack",
    };
    default(spec, "ipFamilyPolicy", policy);
    if !list(spec, "ipFamilies").is_empty() {
        return;
    }
    let mut families: Vec<&str> = match list(spec, "clusterIPs") {
        [one] if one.as_str().is_some_and(|one| one.contains(':')) => vec!["IPv6"],
        _ => vec!["IPv4"],
    };
    if spec["clusterIP"] == "None" && has_no_selector(spec) && spec["ipFamilyPolicy"] != "SingleStack" {
        families.push("IPv6");
    }
    spec["ipFamilies"] = families.into();
}

/// The n-th address, without the first and the last of the network.
fn address(serial: u64) -> String {
    let offset = serial % (CLUSTER_NET_SIZE - 2) + 1;
    Ipv4Addr::from(CLUSTER_NET + u32::try_from(offset).unwrap_or(1)).to_string()
}

/// Reports addresses and families that cannot be assigned.
pub(super) fn check_assigned(spec: &Value, old_spec: Option<&Value>, causes: &mut Causes) {
    if spec["type"] == "ExternalName" {
        return;
    }
    check_fields(spec, causes);
    if causes.0.is_empty() {
        check_configured(spec, causes);
    }
    let assigned = |spec: &Value| spec["type"] != "ExternalName" && spec["clusterIP"] != "None";
    let keeps = old_spec.is_some_and(|old| assigned(old) && old["clusterIP"] == spec["clusterIP"]);
    if causes.0.is_empty() && !keeps && assigned(spec) && !old_spec.is_some_and(assigned) {
        check_network(spec, causes);
    }
}

fn check_network(spec: &Value, causes: &mut Causes) {
    let address = text(spec, "clusterIP");
    let offset = |address: Ipv4Addr| u32::from(address).checked_sub(CLUSTER_NET);
    if let Ok(IpAddr::V4(parsed)) = address.parse()
        && offset(parsed).is_none_or(|offset| u64::from(offset) >= CLUSTER_NET_SIZE)
    {
        let why = format!(
            "failed to allocate IP {address}: the provided IP ({address}) is not in the valid range. The range of valid IPs is 10.96.0.0/12"
        );
        causes.invalid("spec.clusterIPs", &spec["clusterIPs"], &why);
    }
}

/// Reports fields that contradict themselves or one another.
fn check_fields(spec: &Value, causes: &mut Causes) {
    let (field, addresses) = ("spec.clusterIPs", list(spec, "clusterIPs"));
    let first = addresses.first().and_then(Value::as_str).unwrap_or_default();
    if text(spec, "clusterIP").is_empty() {
        if !addresses.is_empty() {
            causes.invalid(field, &spec["clusterIPs"], "must be empty when `clusterIP` is not specified");
        }
    } else if first != text(spec, "clusterIP") {
        causes.invalid(field, &spec["clusterIPs"], "first value must match `clusterIP`");
    }
    let families = list(spec, "ipFamilies");
    let repeated = super::super::repeated(families, |family| family);
    for (nth, family) in families.iter().enumerate() {
        let field = format!("spec.ipFamilies[{nth}]");
        if !matches!(family.as_str(), Some("IPv4" | "IPv6")) {
            causes.unsupported(&field, family, &["IPv4", "IPv6"]);
        }
        if repeated[nth] {
            causes.duplicate(field, family);
        }
    }
    let policy = &spec["ipFamilyPolicy"];
    let policies = schema::values("ServiceSpec", "ipFamilyPolicy");
    if !policies.iter().any(|one| policy == one) {
        causes.unsupported("spec.ipFamilyPolicy", policy, policies);
    }
    let before = causes.0.len();
    for (nth, address) in addresses.iter().enumerate() {
        if nth == 0 && address == "None" {
            if addresses.len() > 1 {
                causes.invalid(field, &spec["clusterIPs"], "'None' must be the first and only value");
            }
            continue;
        }
        causes.all(&format!("{field}[{nth}]"), address, names::address(address.as_str().unwrap_or_default()));
    }
    let invalid = causes.0.len() > before;
    if addresses.len() > 2 {
        causes.invalid(field, &spec["clusterIPs"], "may only hold up to 2 values");
    }
    if !invalid {
        check_stacks(spec, causes);
    }
}

/// Reports addresses of one family, and those that are not of the family that is named for them.
fn check_stacks(spec: &Value, causes: &mut Causes) {
    let addresses = list(spec, "clusterIPs");
    let is_six = |address: &Value| address.as_str().is_some_and(|address| address.contains(':'));
    let sixes = addresses.iter().filter(|address| is_six(address)).count();
    if addresses.len() > 1 && (sixes == 0 || sixes == addresses.len()) {
        causes.invalid("spec.clusterIPs", &spec["clusterIPs"], "may specify no more than one IP for each IP family");
    }
    if is_headless(spec) {
        return;
    }
    for (nth, (address, family)) in addresses.iter().zip(list(spec, "ipFamilies")).enumerate() {
        let expected = match family.as_str() {
            Some("IPv4") if is_six(address) => "IPv4",
            Some("IPv6") if !is_six(address) => "IPv6",
            _ => continue,
        };
        let why = format!("expected an {expected} value as indicated by `ipFamilies[{nth}]`");
        causes.invalid(format!("spec.clusterIPs[{nth}]"), address, &why);
    }
}

/// Reports fields that a single-stack cluster does not support.
fn check_configured(spec: &Value, causes: &mut Causes) {
    let (policy, families, addresses) = (&spec["ipFamilyPolicy"], list(spec, "ipFamilies"), list(spec, "clusterIPs"));
    let field = "spec.ipFamilyPolicy";
    if policy == "SingleStack" {
        for (count, what) in [(addresses.len(), "cluster IPs"), (families.len(), "IP families")] {
            if count == 2 {
                let why = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
                causes.invalid(field, policy, &why);
            }
        }
    }
    if let [address] = addresses
        && address.as_str().is_some_and(|address| address.contains(':'))
    {
        causes.invalid("spec.clusterIPs[0]", &spec["clusterIPs"], "IPv6 is not configured on this cluster");
    }
    if !causes.0.is_empty() || (spec["clusterIP"] == "None" && has_no_selector(spec)) {
        return;
    }
    if policy == "RequireDualStack" {
        causes.invalid(field, policy, "this cluster is not configured for dual-stack services");
    }
    for (nth, family) in families.iter().enumerate().filter(|(_, family)| *family == "IPv6") {
        causes.invalid(format!("spec.ipFamilies[{nth}]"), family, "not configured on this cluster");
    }
}

/// Reports external addresses to which no endpoint can be.
pub(super) fn check(spec: &Value, causes: &mut Causes) {
    for (nth, address) in list(spec, "externalIPs").iter().enumerate() {
        let field = format!("spec.externalIPs[{nth}]");
        let text = address.as_str().unwrap_or_default();
        let complaints = names::address(text);
        let parsed = text.parse::<IpAddr>();
        match parsed {
            Ok(parsed) if complaints.is_empty() => causes.all(&field, address, names::endpoint_address(parsed, text)),
            Ok(_) | Err(_) => causes.all(&field, address, complaints),
        }
    }
}

/// Reports a changed address.
pub(super) fn check_change(spec: &Value, old_spec: &Value, causes: &mut Causes) {
    let external = |spec: &Value| spec["type"] == "ExternalName";
    if external(spec) || external(old_spec) || (is_headless(spec) && is_headless(old_spec)) {
        return;
    }
    if list(spec, "clusterIPs").first() != list(old_spec, "clusterIPs").first() {
        causes.invalid("spec.clusterIPs[0]", &spec["clusterIPs"], "may not change once set");
    }
}
