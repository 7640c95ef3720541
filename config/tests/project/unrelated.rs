//! Changes of fields that routing does not read have no effect: they are not events.

use serde_json::json;
use tidegate_config::object::Kind;

use crate::manifest::{self, projected};

#[test]
fn changes_of_unread_fields_change_nothing() {
    for manifest in manifest::all() {
        let before = projected(manifest.kind, &manifest.json);
        let mut json = manifest.json.clone();
        let metadata = &mut json["metadata"];
        metadata["resourceVersion"] = json!("99");
        metadata["generation"] = json!(7);
        metadata["managedFields"] = json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]);
        metadata["finalizers"] = json!(["example.com/kept"]);
        // Any label of a namespace, or of a Secret with a key, may be used in a selector.
        if !matches!(manifest.kind, Kind::Namespace | Kind::Secret) {
            metadata["labels"]["team"] = json!("checkout");
        }
        metadata["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!("{}");
        json["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
        json["immutable"] = json!(true);
        let after = projected(manifest.kind, &json);
        let file = manifest.file.display();
        assert_eq!(before.object, after.object, "{file}");
        assert_eq!(before.findings, after.findings, "{file}");
        assert_eq!(&*after.meta.resource_version, "99", "{file}");
        assert_eq!(after.meta.generation, Some(7), "{file}");
    }
}
