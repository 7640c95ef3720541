//! The roles of `deploy/` against the API server's audit log of Tidegate.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate_tests::cluster::{Edge, environment, manifest};
use tidegate_tests::{eventually, get};

use crate::stage::{Stage, whole};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A Lease that no manifest of `deploy/` names.
pub(crate) const OTHER_LEASE: &str = "another";

/// Verb, group, resource with the subresource behind a slash, and the name of an object unless all of them are meant.
pub(crate) type Right = (String, String, String, Option<String>);

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The rights of a role, as the API server holds it.
pub(crate) fn allowed(role: &Value) -> BTreeSet<Right> {
    let words =
        |rule: &Value, field: &str| -> Vec<String> { rule[field].as_array().into_iter().flatten().map(text).collect() };
    let mut allowed = BTreeSet::new();
    for rule in role["rules"].as_array().expect("rules") {
        for group in words(rule, "apiGroups") {
            for resource in words(rule, "resources") {
                let mut names: Vec<Option<String>> = words(rule, "resourceNames").into_iter().map(Some).collect();
                names.extend(rule["resourceNames"].is_null().then_some(None));
                for name in names {
                    let right = |verb| (verb, group.clone(), resource.clone(), name.clone());
                    allowed.extend(words(rule, "verbs").into_iter().map(right));
                }
            }
        }
    }
    allowed
}

/// The requests of a service account of Tidegate's namespace, by name unless it may have all, and their namespaces.
/// Their results do not matter: a server that has just started refuses requests that it will allow later.
pub(crate) fn asked(stage: &Stage, account: &str, allowed: &BTreeSet<Right>) -> (BTreeSet<Right>, BTreeSet<String>) {
    let (mut rights, mut namespaces) = (BTreeSet::new(), BTreeSet::new());
    for request in stage.cluster.asked_by("tidegate", account) {
        let object = &request["objectRef"];
        assert!(object.is_object(), "not about an object: {request}");
        let resource = match object["subresource"].as_str() {
            Some(subresource) => format!("{}/{subresource}", text(&object["resource"])),
            None => text(&object["resource"]),
        };
        if resource != "ingressclasses" {
            namespaces.insert(text(&object["namespace"]));
        }
        let mut right = (text(&request["verb"]), text(&object["apiGroup"]), resource, None);
        if !allowed.contains(&right) {
            right.3 = object["name"].as_str().map(str::to_owned);
        }
        rights.insert(right);
    }
    (rights, namespaces)
}

async fn deployed_role(stage: &Stage) -> Value {
    stage.cluster.api.get(&format!("{RBAC}/clusterroles/tidegate")).await
}

/// Only all the other cases together use all rights. Without one of them this checks only that no other right is
/// requested.
pub(crate) async fn the_role_matches_the_requests(stage: &mut Stage) {
    let mut rights = allowed(&deployed_role(stage).await);
    rights.extend(allowed(&stage.cluster.api.get(&format!("{RBAC}/namespaces/tidegate/roles/tidegate")).await));
    let (mut used, _) = asked(stage, "tidegate", &rights);
    // A case took part in the election by a Lease of its own, with a role of its own.
    used.retain(|(.., name)| name.as_deref() != Some(OTHER_LEASE));
    if !whole() {
        println!(
            "    not all cases run, so a right may be left over: only what is asked for is held against the roles"
        );
        rights.retain(|right| used.contains(right));
    }
    assert_eq!(used, rights, "what Tidegate asked for (left) is what its roles allow (right)");
}

impl Stage {
    /// Lets Tidegate take part in the election by another Lease of its namespace.
    pub(crate) async fn allow_lease(&self, lease: &str) {
        self.grant("tidegate", lease, Some("tidegate"), &role_beside_the_pods(self, lease).await).await;
    }

    /// Creates a service account in Tidegate's namespace, without any right.
    pub(crate) async fn account(&self, name: &str) {
        let account = json!({"metadata": {"name": name}});
        self.cluster.api.create("/api/v1/namespaces/tidegate/serviceaccounts", &account).await;
    }

    /// Creates a role of this name, in a namespace or for all, and binds it to a service account of Tidegate's
    /// namespace.
    pub(crate) async fn grant(&self, account: &str, name: &str, namespace: Option<&str>, rules: &[Value]) {
        let (place, kinds, kind) = match namespace {
            Some(namespace) => (format!("{RBAC}/namespaces/{namespace}"), ["roles", "rolebindings"], "Role"),
            None => (RBAC.to_owned(), ["clusterroles", "clusterrolebindings"], "ClusterRole"),
        };
        let subjects = json!([{"kind": "ServiceAccount", "namespace": "tidegate", "name": account}]);
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        let role = json!({"metadata": {"name": name}, "rules": rules});
        let binding = json!({"metadata": {"name": name}, "subjects": subjects, "roleRef": reference});
        for (kind, object) in kinds.into_iter().zip([role, binding]) {
            self.cluster.api.create(&format!("{place}/{kind}"), &object).await;
        }
    }
}

/// The rules of the Role in the pods' namespace, for the Lease of this name.
async fn role_beside_the_pods(stage: &Stage, lease: &str) -> Vec<Value> {
    let role = stage.cluster.api.get(&format!("{RBAC}/namespaces/tidegate/roles/tidegate")).await;
    let mut rules = role["rules"].as_array().expect("rules").clone();
    let named = rules.iter_mut().filter_map(|rule| rule.get_mut("resourceNames"));
    named.for_each(|names| *names = json!([lease]));
    rules
}

/// The instructions of `deploy/manifests/10-rbac.yaml` for a few namespaces, with the settings of the Deployment. One
/// of the namespaces may have gone, and its RoleBinding with it.
pub(crate) async fn a_role_in_a_namespace_is_enough_for_that(stage: &mut Stage) {
    stage.app("few").await;
    stage.app("others").await;
    let role = deployed_role(stage).await;
    let rules = |of_classes: bool| -> Vec<Value> {
        let mut rules = role["rules"].as_array().expect("rules").clone();
        for rule in &mut rules {
            let resources = rule["resources"].as_array_mut().expect("resources");
            resources.retain(|resource| (resource == "ingressclasses") == of_classes);
        }
        rules.retain(|rule| rule["resources"] != json!([]));
        rules
    };
    let mut beside = role_beside_the_pods(stage, "few").await;
    let publish = json!({"apiGroups": [""], "resources": ["services"], "resourceNames": ["tidegate"], "verbs": ["list", "watch"]});
    beside.push(publish);
    stage.account("few").await;
    let lease = allowed(&json!({"rules": beside})).into_iter().filter(|(_, group, ..)| group == "coordination.k8s.io");
    let lease: Vec<Right> = lease.collect();
    for (namespace, rules) in [(None, rules(true)), (Some("few"), rules(false)), (Some("tidegate"), beside)] {
        stage.grant("few", "few", namespace, &rules).await;
    }
    let service = manifest("40-service");
    stage.cluster.kubectl.run(&["apply", "-f", service.to_str().expect("UTF-8")]).await;
    let (mut arguments, environment) = (vec!["--lease", "tidegate/few", "--namespace", "few"], environment());
    let edge = Edge::launch(&stage.cluster, "few", "10.244.0.3", &arguments, &environment).await;
    edge.ready().await;
    eventually("it leads", || async {
        if edge.metric("tidegate_leader", "").await > 0.0 { Ok(()) } else { Err(edge.last_words()) }
    })
    .await;
    assert_eq!(get(edge.http, "few.test", "/").await.expect("an answer").status, 200);
    assert_eq!(get(edge.http, "others.test", "/").await.expect("an answer").status, 404);
    edge.end().await;
    // The Lease is the only object to write.
    let mut rights = allowed(&role);
    rights.retain(|(verb, ..)| ["list", "watch"].contains(&&**verb));
    rights.extend(lease);
    let (used, namespaces) = asked(stage, "few", &rights);
    assert_eq!((used, namespaces), (rights, ["few", "tidegate"].map(str::to_owned).into()));

    arguments.extend(["--namespace", "gone", "--optional-kinds-grace", "2s"]);
    let edge = Edge::launch(&stage.cluster, "few", "10.244.0.3", &arguments, &environment).await;
    let answers = |host: &'static str| async move { Ok::<_, String>(get(edge.http, host, "/").await?.status) };
    eventually("it serves the namespace that is there", || async {
        if answers("few.test").await? == 200 { Ok(()) } else { Err(edge.last_words()) }
    })
    .await;
    let told = get(edge.admin, "localhost", "/readyz?verbose").await.expect("an answer");
    let denied = "collection Ingress in gone: not synced, failing: the API server answered 403";
    assert!(told.status == 200 && told.body.contains("degraded: true") && told.body.contains(denied), "{}", told.body);
}

/// The output of kustomize for `deploy/` with its component `secrets-by-name`: an overlay of both, as its header
/// comment describes.
async fn kustomized(stage: &Stage) -> String {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").canonicalize().expect("a folder");
    let overlay = stage.cluster.folder().join("overlay");
    std::fs::create_dir(&overlay).expect("a folder");
    let overlay = overlay.canonicalize().expect("a folder");
    // Bases are relative to their overlay.
    let root: PathBuf = overlay.components().skip(1).map(|_| "..").collect();
    let base = root.join(deploy.strip_prefix("/").expect("a path from the root"));
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [base], "components": [base.join("secrets-by-name")],
    });
    std::fs::write(overlay.join("kustomization.yaml"), kustomization.to_string()).expect("a file");
    stage.cluster.kubectl.run(&["kustomize", overlay.to_str().expect("UTF-8")]).await
}

/// An edge deployed with the component can get Secrets by name and nothing more.
pub(crate) async fn secrets_by_name_need_no_other_right(stage: &mut Stage) {
    let text = kustomized(stage).await;
    stage.cluster.kubectl.fed(&["apply", "--dry-run=server", "-f", "-"], &text).await;
    let objects: Vec<Value> =
        text.split("\n---\n").map(|object| serde_saphyr::from_str(object).expect("YAML")).collect();
    let of = |kind: &str| objects.iter().find(|object| object["kind"] == kind).expect("one of that kind");
    let variables = of("Deployment")["spec"]["template"]["spec"]["containers"][0]["env"].as_array().expect("variables");
    assert!(variables.contains(&json!({"name": "TIDEGATE_WATCH_SECRETS", "value": "referenced"})), "{variables:?}");
    let role = of("ClusterRole");
    stage.account("named").await;
    stage.grant("named", "named", None, role["rules"].as_array().expect("rules")).await;
    let by_name = ["--watch-secrets", "referenced", "--default-certificate", "tidegate/none", "--status", "off"];
    drop(Edge::start_as(&stage.cluster, "named", "10.244.0.4", &by_name).await);
    let mut read = allowed(role);
    assert!(read.contains(&("get".to_owned(), String::new(), "secrets".to_owned(), None)), "{read:?}");
    read.retain(|(verb, ..)| ["get", "list", "watch"].contains(&&**verb));
    assert_eq!(asked(stage, "named", &read).0, read);
}
