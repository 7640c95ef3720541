//! Node ports and addresses: each belongs to one Service. The rules of the kind see one object; this module sees the
//! others.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Target;
use crate::causes::Causes;
use crate::failure::Failure;
use crate::kind::Kind;
use crate::store::{Part, State};

/// The range of assigned ports, as in the real server's `--service-node-port-range`.
const GIVEN_OUT: std::ops::Range<u64> = 30_000..32_768;

fn is_kind(kind: &Kind) -> bool {
    kind.built_in() == Some("Service")
}

/// The node ports of an object, in the order of its ports.
fn of(object: &Value) -> impl Iterator<Item = (usize, u64)> {
    let ports = object["spec"]["ports"].as_array().into_iter().flatten().enumerate();
    ports.filter_map(|(nth, port)| Some((nth, port["nodePort"].as_u64().filter(|port| *port != 0)?)))
}

/// The ports of all Services except those that the object had before.
fn taken(state: &State, target: &Target, old: Option<&Value>) -> BTreeSet<u64> {
    let everywhere = Part::default();
    let all = state.list(&target.kind, &everywhere).flat_map(|(_, object)| of(object.value()));
    let mut taken: BTreeSet<u64> = all.map(|(_, port)| port).collect();
    for (_, port) in old.into_iter().flat_map(of) {
        taken.remove(&port);
    }
    taken
}

/// Moves ports that the defaults have chosen to free ones. `sent` is the spec of the request.
pub(super) fn give_out(state: &State, target: &Target, old: Option<&Value>, new: &mut Value, sent: Option<&Value>) {
    if !is_kind(target.description()) || of(new).next().is_none() {
        return;
    }
    let mut taken = taken(state, target, old);
    let mut free: BTreeSet<u64> = GIVEN_OUT.filter(|port| !taken.contains(port)).collect();
    let chosen: Vec<(usize, u64)> = of(new).collect();
    for (nth, port) in chosen {
        let asked = sent.is_some_and(|sent| sent["ports"][nth]["nodePort"].as_u64() == Some(port));
        let port = if asked || !taken.contains(&port) {
            port
        } else {
            free.range(port + 1..).next().or_else(|| free.first()).copied().unwrap_or(port)
        };
        new["spec"]["ports"][nth]["nodePort"] = port.into();
        taken.insert(port);
        free.remove(&port);
    }
}

/// Refuses a port or an address of another Service. `sent` is the spec of the request: an address that the server chose
/// is new.
pub(super) fn check(
    state: &State,
    target: &Target,
    old: Option<&Value>,
    new: &Value,
    sent: Option<&Value>,
) -> Result<(), Failure> {
    if !is_kind(target.description()) {
        return Ok(());
    }
    let mut causes = Causes::default();
    check_address(state, target, old, (new, sent), &mut causes);
    if causes.0.is_empty() && of(new).next().is_some() {
        let taken = taken(state, target, old);
        for (nth, port) in of(new).filter(|(_, port)| taken.contains(port)) {
            causes.invalid(format!("spec.ports[{nth}].nodePort"), &port.into(), "provided port is already allocated");
        }
    }
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    if causes.0.is_empty() { Ok(()) } else { Err(Failure::invalid(target.description(), name, &causes.0)) }
}

fn check_address(
    state: &State,
    target: &Target,
    old: Option<&Value>,
    (new, sent): (&Value, Option<&Value>),
    causes: &mut Causes,
) {
    let address = |spec: &Value| spec["clusterIP"].as_str().filter(|it| !matches!(*it, "" | "None")).map(str::to_owned);
    let had = old.and_then(|old| address(&old["spec"]));
    let Some(asked) = sent.and_then(address).filter(|asked| had.as_ref() != Some(asked)) else { return };
    let everywhere = Part::default();
    if state.list(&target.kind, &everywhere).any(|(_, object)| object.value()["spec"]["clusterIP"] == *asked) {
        let why = format!("failed to allocate IP {asked}: provided IP is already allocated");
        causes.invalid("spec.clusterIPs", &new["spec"]["clusterIPs"], &why);
    }
}
