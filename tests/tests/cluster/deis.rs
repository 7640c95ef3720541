//! `deploy/deis` on a real control plane: applications of the Deis router, read with exactly its roles.

use std::path::Path;

use serde_json::{Value, json};
use tidegate_tests::cluster::Edge;
use tidegate_tests::{eventually, get};

use crate::rights::{allowed, asked};
use crate::stage::Stage;

/// Waits until a host has this status.
async fn answers(edge: &Edge, host: &str, status: u16) {
    eventually(&format!("{status} of {host}"), || async {
        let answer = get(edge.http, host, "/").await?;
        if answer.status == status { Ok(()) } else { Err(format!("{} {}", answer.status, edge.last_words())) }
    })
    .await;
}

/// The output of kustomize for `deploy/deis`, without the pods.
async fn kustomized(stage: &Stage) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/deis").canonicalize().expect("a folder");
    let text = stage.cluster.kubectl.run(&["kustomize", folder.to_str().expect("UTF-8")]).await;
    let objects = text.split("\n---\n").map(|object| serde_saphyr::from_str::<Value>(object).expect("YAML"));
    let mut objects: Vec<Value> = objects.collect();
    for object in objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
        object["spec"]["replicas"] = 0.into();
    }
    objects
}

/// The roles are those of an edge in place of the Deis router, which follows applications and the Deployment.
pub(crate) async fn its_roles_are_enough_for_applications(stage: &mut Stage) {
    stage.app("blog").await;
    let kubectl = &stage.cluster.kubectl;
    kubectl.run(&["create", "namespace", "deis"]).await;
    let objects = kustomized(stage).await;
    kubectl
        .fed(&["apply", "-f", "-"], &json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())
        .await;
    let router = ["-n", "deis", "annotate", "--overwrite", "deployment", "deis-router"];
    kubectl.run(&[&router[..], &["router.deis.io/nginx.platformDomain=apps.test"]].concat()).await;
    kubectl.run(&["-n", "blog", "label", "service", "web", "router.deis.io/routable=true"]).await;
    let asks = ["router.deis.io/domains=blog,www.blog.test", "router.deis.io/certificates=www.blog.test:www"];
    kubectl.run(&[&["-n", "blog", "annotate", "service", "web"][..], &asks].concat()).await;

    let role = |kind: &str| objects.iter().find(|object| object["kind"] == kind).expect("a role").clone();
    let roles = [(None, role("ClusterRole")), (Some("deis"), role("Role"))];
    stage.account("deis").await;
    let mut read = std::collections::BTreeSet::new();
    for (namespace, role) in &roles {
        stage.grant("deis", "deis", *namespace, role["rules"].as_array().expect("rules")).await;
        read.extend(allowed(role));
    }
    let arguments = ["--source", "deis", "--watch-secrets", "referenced", "--status", "off"];
    let edge = Edge::start_as(&stage.cluster, "deis", "10.244.0.5", &arguments).await;
    answers(&edge, "blog.apps.test", 200).await;
    answers(&edge, "www.blog.test", 200).await;
    // Ingresses make no routes here.
    answers(&edge, "blog.test", 404).await;
    kubectl.run(&[&router[..], &["router.deis.io/nginx.platformDomain=other.test"]].concat()).await;
    answers(&edge, "blog.other.test", 200).await;
    answers(&edge, "blog.apps.test", 404).await;
    kubectl.run(&["-n", "blog", "label", "--overwrite", "service", "web", "router.deis.io/routable=false"]).await;
    answers(&edge, "blog.other.test", 404).await;

    read.retain(|(verb, group, ..)| ["get", "list", "watch"].contains(&&**verb) && group != "coordination.k8s.io");
    assert_eq!(asked(stage, "deis", &read).0, read);
}
