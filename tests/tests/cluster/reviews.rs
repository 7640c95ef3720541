//! Rules of AuthPolicies that ask a real API server who a client is and what it may do, with exactly the rights of
//! `deploy/policies` and `deploy/reviews`.

use std::path::{Path, PathBuf};

use http::Request;
use http_body_util::Empty;
use serde_json::{Value, json};
use tidegate_tests::cluster::Edge;
use tidegate_tests::{eventually, request};

use crate::stage::Stage;

const HOST: &str = "reviews.test";

/// Accounts of the cluster may send what a role allows them: the right to the path of the request.
const POLICY: &str = "
apiVersion: kuadrant.io/v1
kind: AuthPolicy
metadata: {namespace: reviews, name: accounts}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: none}
  rules:
    authentication:
      account:
        kubernetesTokenReview: {audiences: [reviews.test]}
    authorization:
      may:
        kubernetesSubjectAccessReview:
          user: {expression: auth.identity.user.username}
          authorizationGroups: {expression: auth.identity.user.groups}
";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// The rules of the ClusterRole in a folder of `deploy/`.
fn rules(folder: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(workspace().join("deploy").join(folder)).expect("a role");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    let role = documents.iter().find(|document| document["kind"] == "ClusterRole").expect("a ClusterRole");
    role["rules"].as_array().expect("rules").clone()
}

/// A token of an account of the namespace `reviews` for this audience.
async fn token(stage: &Stage, account: &str, audience: &str) -> String {
    let spec = json!({"expirationSeconds": 3600, "audiences": [audience]});
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let path = format!("/api/v1/namespaces/reviews/serviceaccounts/{account}/token");
    stage.cluster.api.create(&path, &request).await["status"]["token"].as_str().expect("a token").to_owned()
}

/// Waits until a request with a token, or without one, is answered with this status.
async fn answers(edge: &Edge, path: &str, token: Option<&str>, status: u16) {
    let what = format!("{status} of {path} with{} token", if token.is_some() { " a" } else { "out a" });
    eventually(&what, || async {
        let mut asked = Request::get(path).header("host", HOST);
        if let Some(token) = token {
            asked = asked.header("authorization", format!("Bearer {token}"));
        }
        let answer = request(edge.http, asked.body(Empty::new()).map_err(|error| error.to_string())?).await?;
        if answer.status == status { Ok(()) } else { Err(format!("{} {}", answer.status, edge.last_words())) }
    })
    .await;
}

pub(crate) async fn accounts_send_what_their_roles_allow(stage: &mut Stage) {
    stage.app("reviews").await;
    let kubectl = &stage.cluster.kubectl;
    let definitions = workspace().join("lite/crds/kuadrant-v1");
    kubectl.run(&["apply", "--server-side", "-f", definitions.to_str().expect("UTF-8")]).await;
    eventually("the kind is served", || async {
        let (code, _, error) = kubectl.tried(&["get", "authpolicies.kuadrant.io"], "").await;
        if code == Some(0) { Ok(()) } else { Err(error) }
    })
    .await;
    kubectl.fed(&["apply", "-f", "-"], POLICY).await;
    kubectl.run(&["-n", "reviews", "annotate", "ingress", "web", "tidegate.io/policy=accounts"]).await;
    for account in ["anna", "ben"] {
        kubectl.run(&["-n", "reviews", "create", "serviceaccount", account]).await;
    }
    kubectl.run(&["create", "clusterrole", "reads-open", "--verb=get", "--non-resource-url=/open"]).await;
    let bind = ["create", "clusterrolebinding", "anna-reads", "--clusterrole=reads-open"];
    kubectl.run(&[&bind[..], &["--serviceaccount=reviews:anna"]].concat()).await;

    stage.account("reviews").await;
    let reads = [rules("manifests/10-rbac.yaml"), rules("policies/rbac.yaml")].concat();
    stage.grant("reviews", "reviews-reads", None, &reads).await;
    let arguments = ["--source", "ingress,kuadrant", "--status", "off"];
    let edge = Edge::start_as(&stage.cluster, "reviews", "10.244.0.6", &arguments).await;
    let [anna, ben, elsewhere] = [
        token(stage, "anna", HOST).await,
        token(stage, "ben", HOST).await,
        token(stage, "anna", "https://cluster.test").await,
    ];
    // Without the right to create reviews nobody passes.
    answers(&edge, "/open", Some(&anna), 401).await;
    stage.grant("reviews", "reviews-asks", None, &rules("reviews/rbac.yaml")).await;
    answers(&edge, "/open", Some(&anna), 200).await;
    answers(&edge, "/open", None, 401).await;
    answers(&edge, "/open", Some("no-token"), 401).await;
    answers(&edge, "/open", Some(&elsewhere), 401).await;
    answers(&edge, "/open", Some(&ben), 403).await;
    answers(&edge, "/shut", Some(&anna), 403).await;
    kubectl.run(&["delete", "clusterrolebinding", "anna-reads"]).await;
    answers(&edge, "/open", Some(&anna), 403).await;
    kubectl.run(&["-n", "reviews", "delete", "serviceaccount", "anna"]).await;
    answers(&edge, "/open", Some(&anna), 401).await;
}
