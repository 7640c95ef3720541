//! The other writer of a status that keeps being overwritten, as far as `metadata.managedFields` names it. An edge
//! writes status under a field manager that names its Lease, so that two edges of one class can tell each other apart.

use kube::api::ListParams;
use kube::core::Request;
use serde_json::Value;
use tidegate_config::finding::printable;
use tidegate_config::object::{ObjectName, ObjectRef};

use super::conditions::collection;
use super::send::Prepared;
use super::{FIELD_MANAGER, Leadership, Reporter};

/// The API's limit of the name of a field manager, in bytes.
const MANAGER_BYTES_MAX: usize = 128;

/// The field manager of an edge's writes of status: `tidegate/NAMESPACE/NAME` of its Lease, cut to the API's limit.
pub(super) fn status_manager(lease: &ObjectName) -> String {
    let mut manager = format!("{FIELD_MANAGER}/{lease}");
    manager.truncate(manager.floor_char_boundary(MANAGER_BYTES_MAX));
    manager
}

/// The Lease of the edge that writes status as this field manager. `None` if it is no edge, and for an edge of a
/// release that names no Lease.
fn lease_of(manager: &str) -> Option<&str> {
    manager.strip_prefix(FIELD_MANAGER)?.strip_prefix('/')
}

/// Returns `true` for the entry of `metadata.managedFields` with the part of a status that an edge wrote, with whatever
/// Lease: `--lease` may have changed since.
pub(super) fn is_our_status(entry: &Value) -> bool {
    let manager = entry["manager"].as_str().unwrap_or_default();
    entry["subresource"] == "status" && (manager == FIELD_MANAGER || lease_of(manager).is_some())
}

/// Reads an object by a list, because an edge that writes no conditions may list Ingresses and not get one.
fn find(object: &ObjectRef) -> Prepared {
    Request::new(collection(object)).list(&ListParams::default().fields(&format!("metadata.name={}", object.name.name)))
}

/// A description of the client other than `own` that wrote the status of an object last. `None` if there is no trace of
/// one.
fn other_writer(object: &Value, own: &str) -> Option<String> {
    let entries = object["metadata"]["managedFields"].as_array()?.iter();
    let others = entries.filter(|entry| entry["subresource"] == "status" && entry["manager"] != own);
    // Times of this form compare as text.
    let last = others.max_by_key(|entry| entry["time"].as_str())?;
    let manager = last["manager"].as_str()?;
    Some(match lease_of(manager) {
        Some(lease) => format!("the edge with the Lease {}", printable(lease)),
        None => format!("the client {:?}", printable(manager)),
    })
}

impl Reporter {
    /// Finds out who overwrites contested statuses, while the queue exists.
    pub(super) async fn identify_writers(&self, lead: &Leadership) {
        while let Some(object) = self.view.reports.contested.get().await {
            self.retry_after.over().await;
            let read = self.send::<Value>(lead, find(&object)).await;
            let writer = read.ok().and_then(|list| other_writer(&list["items"][0], &self.manager));
            let reported = self.view.report_status_writer(object.clone(), writer).await;
            object.succeeded();
            if reported.is_none() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_manager_names_the_lease_within_the_limit_of_the_api() {
        let manager = |name: &str| status_manager(&ObjectName::new("edge", name));
        assert_eq!(manager("tidegate"), "tidegate/edge/tidegate");
        assert_eq!(manager(&"é".repeat(100)), format!("tidegate/edge/{}", "é".repeat(57)));
    }

    #[test]
    fn the_last_other_writer_of_a_status_is_named() {
        let entry = |manager: &str, subresource: &str, second: u32| {
            let time = format!("2026-01-01T00:00:{second:02}Z");
            json!({"manager": manager, "subresource": subresource, "operation": "Update", "time": time})
        };
        let check = |entries: Value, want: Option<&str>| {
            let object = json!({"metadata": {"managedFields": entries}});
            assert_eq!(other_writer(&object, "tidegate/edge/one").as_deref(), want, "{entries}");
        };
        let own = || entry("tidegate/edge/one", "status", 9);
        check(json!([own(), entry("kubectl", "", 8)]), None);
        check(json!(null), None);
        check(json!([entry("tidegate/edge/two", "status", 7), own()]), Some("the edge with the Lease edge/two"));
        let [first, last] = [entry("tidegate/edge/two", "status", 5), entry("nginx-controller", "status", 7)];
        check(json!([last, first, own()]), Some("the client \"nginx-controller\""));
        // An edge of an earlier release names no Lease.
        check(json!([entry("tidegate", "status", 5)]), Some("the client \"tidegate\""));
    }

    #[test]
    fn the_status_of_an_edge_is_known_whatever_its_lease() {
        for (manager, subresource, want) in [
            ("tidegate", "status", true),
            ("tidegate/edge/two", "status", true),
            ("tidegate", "", false),
            ("tidegate-dns", "status", false),
        ] {
            let entry = json!({"manager": manager, "subresource": subresource});
            assert_eq!(is_our_status(&entry), want, "{entry}");
        }
    }
}
