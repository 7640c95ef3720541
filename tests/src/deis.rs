//! A Deis platform in `tidegate dev`: the router's Deployment and one application, of `examples/deis`.

use crate::{Answer, Dev, Kubectl, eventually, get};

const ROUTER: &str = include_str!("../../examples/deis/router.yaml");
const BLOG: &str = include_str!("../../examples/deis/blog.yaml");

/// Starts the platform, with more arguments; `None` if there is no kubectl to change objects with.
pub async fn deis(arguments: &[&str]) -> Option<(Dev, Kubectl)> {
    let arguments = [&["--source", "deis"], arguments].concat();
    let dev = Dev::with(&[("router.yaml", ROUTER), ("blog.yaml", BLOG)], &arguments).await;
    let kubectl = Kubectl::for_config(&dev.kubeconfig)?;
    answered(&dev, "blog.apps.localhost", 200).await;
    Some((dev, kubectl))
}

/// Annotates the router's Deployment with settings, such as `bodySize=1k`; one that ends with a dash is removed.
pub async fn annotate_router(kubectl: &Kubectl, settings: &[&str]) {
    let settings: Vec<String> = settings.iter().map(|setting| format!("router.deis.io/nginx.{setting}")).collect();
    let mut arguments = vec!["-n", "deis", "annotate", "deployment", "deis-router", "--overwrite"];
    arguments.extend(settings.iter().map(String::as_str));
    kubectl.run(&arguments).await;
}

/// Waits until a GET of a host has this status, and returns the response.
pub async fn answered(dev: &Dev, host: &str, status: u16) -> Answer {
    eventually(&format!("{status} of {host}"), || async {
        let answer = get(dev.http, host, "/").await?;
        if answer.status == status { Ok(answer) } else { Err(format!("{answer:?}")) }
    })
    .await
}
