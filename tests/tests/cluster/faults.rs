//! Faults of the control plane itself.

use http::Method;
use serde_json::json;
use tidegate_tests::{eventually, get, moment};

use crate::objects::a_status_is_mended;
use crate::stage::{Stage, ingress, measured, rule};

/// The number of lists needed because the server had dropped the history since.
async fn expired(stage: &Stage) -> f64 {
    stage.edge.metric("tidegate_lists_total", "reason=\"expired\"").await
}

/// The kubelet replaces the token of a pod long before it expires. Here the previous token expires with it, so requests
/// with it are refused: writers at once, and watches when they begin again, which all have to in the cases after this
/// one.
pub(crate) async fn its_token_is_replaced(stage: &mut Stage) {
    stage.app("token").await;
    let former = stage.edge.rotate_token(&stage.cluster).await;
    let begun = moment();
    // The server caches a token for ten seconds.
    eventually("the former token is refused", || async {
        let (status, _) = former.ask(Method::GET, "/apis/networking.k8s.io/v1/ingressclasses", None).await?;
        if status == 401 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    measured("a token is taken back, and refused", begun);
    let begun = moment();
    a_status_is_mended(stage, "token").await;
    measured("a status is written with the next one", begun);
    stage.edge.ready().await;
}

pub(crate) async fn the_api_server_crashes(stage: &mut Stage) {
    stage.app("crash").await;
    let steady = stage.steady("crash.test");
    stage.cluster.crash_api_server().await;
    // Long enough for watches to be retried in vain.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let answer = get(stage.edge.admin, "localhost", "/readyz").await.expect("an answer");
    assert_eq!(answer.status, 200, "never unready because the API server is away");
    let begun = moment();
    stage.cluster.start_api_server().await;
    measured("the API server starts again", begun);
    let patch = json!({"spec": {"rules": [rule("crash.test", 80), rule("after-crash.test", 80)]}});
    let what = "the first change after that is live";
    stage.change(&ingress("crash"), &patch, "after-crash.test", what, |answer| answer.status == 200).await;
    stage.edge.ready().await;
    measured("and every watch is open again", begun);
    steady.stop().await.all();
}

pub(crate) async fn missed_changes_are_listed(stage: &mut Stage) {
    stage.app("missed").await;
    stage.app("kept").await;
    let steady = stage.steady("kept.test");
    let before = expired(stage).await;
    // Suspended, and cut off by the crash, the edge misses a deletion, a change, and the compaction of all history with
    // them.
    stage.edge.signal("-STOP").await;
    stage.cluster.crash_api_server().await;
    stage.cluster.start_api_server().await;
    stage.cluster.api.delete(&ingress("missed")).await;
    let patch = json!({"spec": {"rules": [rule("kept.test", 80), rule("meanwhile.test", 80)]}});
    stage.cluster.api.merge(&ingress("kept"), &patch).await;
    stage.cluster.compact().await;
    let begun = moment();
    stage.edge.signal("-CONT").await;
    stage.until("missed.test", "it is gone", |answer| answer.status == 404).await;
    stage.until("meanwhile.test", "it is there", |answer| answer.status == 200).await;
    measured("what was missed through a compaction is live", begun);
    eventually("the history was gone", || async {
        if expired(stage).await > before { Ok(()) } else { Err("nothing was listed for that".to_owned()) }
    })
    .await;
    stage.edge.ready().await;
    steady.stop().await.all();
}
