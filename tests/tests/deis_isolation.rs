//! Every mistake that stopped the Deis router, or its changes, for all applications: made at once, during requests to
//! other applications. Those respond as before, and each mistake has the cost given in docs/migrate-from-deis.md, which
//! affects its own application or nothing.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

#[path = "deis_nginx/endpoint.rs"]
mod endpoint;
#[path = "deis_nginx/world.rs"]
#[allow(dead_code, reason = "the comparison with nginx asks for more")]
mod world;

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use serde_json::Value;
use tidegate_tests::{Answer, Dev, Kubectl, eventually, get, https};
use tokio::sync::watch;

use crate::world::World;

/// The minimum number of rounds of requests to the good applications, from before the bad ones are created until after
/// they are deleted.
const ROUNDS_MIN: u64 = 20;

/// Applications without a mistake.
async fn good() -> World {
    let mut world = World::new(&[("platformDomain", "apps.test"), ("whitelistMode", "override")]);
    world.certificate("deis", "deis-router-platform-cert", &["*.apps.test"]);
    world.certificate("blog", "www-cert", &["www.blog.test"]);
    let domains = ("domains", "blog,www.blog.test");
    world.app("blog", &[domains, ("certificates", "www.blog.test:www")]).await;
    world.app("shop", &[("domains", "shop,*.shop.test"), ("whitelist", "127.0.0.1"), ("tcpTimeout", "10s")]).await;
    world.app("bank", &[("domains", "bank"), ("whitelist", "192.0.2.1")]).await;
    world.app("pay", &[("domains", "pay"), ("ssl.enforce", "True")]).await;
    world.app("shut", &[("domains", "shut"), ("maintenance", "True")]).await;
    world.app("docs", &[("domains", "docs")]).await;
    let api = [("domains", "docs-api"), ("proxyDomain", "docs"), ("proxyLocations", "/api")];
    world.app_in("docs", "docs-api", &api).await;
    world
}

/// The requests to them; `true` for TLS.
const GOOD: [(&str, &str, bool, u16); 14] = [
    ("blog.apps.test", "/", false, 200),
    ("blog.apps.test", "/", true, 200),
    ("www.blog.test", "/a?b", false, 200),
    ("www.blog.test", "/a?b", true, 200),
    ("shop.apps.test", "/", false, 200),
    ("a.b.shop.test", "/", false, 200),
    ("bank.apps.test", "/", false, 403),
    ("pay.apps.test", "/", false, 301),
    ("pay.apps.test", "/", true, 200),
    ("shut.apps.test", "/", false, 503),
    ("docs.apps.test", "/", false, 200),
    ("docs.apps.test", "/api/x", false, 200),
    ("unknown.apps.test", "/", false, 404),
    ("unknown.test", "/healthz", false, 200),
];

/// A domain that is too long for a name table of nginx.
const LONG: &str = "an-application-with-a-name-that-is-rather-long.example.test";

/// Applications with one mistake each.
async fn bad() -> World {
    let mut world = World::default();
    let on = |domains: &'static str| ("domains", domains);
    world.app("star", &[on("star,foo.*.bar.test")]).await;
    world.app("long", &[on(LONG)]).await;
    world.app("commas", &[on("commas,"), ("whitelist", "127.0.0.1,"), ("certificates", "commas:commas,")]).await;
    world.app("months", &[on("months"), ("tcpTimeout", "1M"), ("connectTimeout", "1y")]).await;
    let buffers = [("nginx.proxyBuffers.size", "16k"), ("nginx.proxyBuffers.busySize", "8k")];
    world.app("buffers", &[&[on("buffers"), ("nginx.proxyBuffers.number", "1")], &buffers[..]].concat()).await;
    world.app("key", &[on("key.test"), ("certificates", "key.test:key")]).await;
    world.certificate("key", "key-cert", &["key.test"]);
    world.app("pem", &[on("pem.test"), ("certificates", "pem.test:pem")]).await;
    world.certificate("pem", "pem-cert", &["pem.test"]);
    world.app("headless", &[on("headless")]).await;
    world.app_at("external", "external", &[on("external")], &[]);
    world.app_at("endless", "endless", &[on("endless")], &[]);
    world.app("rest", &[on("rest"), ("proxyDomain", "nobody"), ("proxyLocations", "/rest")]).await;
    let locations = [on("docs-bad"), ("proxyDomain", "docs"), ("proxyLocations", "/,/bad,/bad,,/worse")];
    world.app_in("docs", "docs-bad", &locations).await;
    for object in &mut world.objects {
        let text = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        match (object["kind"].as_str(), object["metadata"]["name"].as_str()) {
            (Some("Secret"), Some("key-cert")) => {
                let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
                object["data"]["tls.key"] = text(&other).into();
            }
            (Some("Secret"), Some("pem-cert")) => object["data"]["tls.crt"] = text("no PEM at all").into(),
            (Some("Service"), Some("headless")) => object["spec"]["clusterIP"] = "None".into(),
            (Some("Service"), Some("external")) => {
                object["spec"]["type"] = "ExternalName".into();
                object["spec"]["externalName"] = "nowhere.invalid".into();
            }
            _ => {}
        }
    }
    // An application whose EndpointSlice is missing, and not only empty.
    world.objects.retain(|object| !(object["kind"] == "EndpointSlice" && object["metadata"]["name"] == "endless"));
    world
}

/// Mistakes on the router's own Deployment.
const ROUTER: [&str; 9] = [
    "defaultWhitelist=127.0.0.1,",
    "proxyRealIpCidrs=127.0.0.2/31,",
    "defaultTimeout=1M",
    "serverNameHashMaxSize=512k",
    "serverNameHashBucketSize=64k",
    "proxyBuffers.size=16k",
    "proxyBuffers.busySize=8k",
    // It stopped nginx; here it disables early data, as intended.
    "ssl.earlyDataMethods=",
    "defaultServiceEnabled=true",
];

/// The responses of the bad applications: a host, a path, `true` for TLS, a status, and the name of the endpoint, if
/// any.
const BAD: [(&str, &str, bool, u16, &str); 20] = [
    ("star.apps.test", "/", false, 200, "star"),
    ("foo.a.bar.test", "/", false, 404, ""),
    (LONG, "/", false, 200, "long"),
    ("commas.apps.test", "/", false, 200, "commas"),
    ("apps.test", "/", false, 404, ""),
    ("months.apps.test", "/", false, 200, "months"),
    ("buffers.apps.test", "/", false, 200, "buffers"),
    ("key.test", "/", false, 200, "key"),
    ("key.test", "/", true, 200, "key"),
    ("pem.test", "/", false, 200, "pem"),
    ("pem.test", "/", true, 200, "pem"),
    ("headless.apps.test", "/", false, 200, "headless"),
    ("external.apps.test", "/", false, 503, ""),
    ("endless.apps.test", "/", false, 503, ""),
    ("rest.apps.test", "/", false, 200, "rest"),
    ("docs.apps.test", "/", false, 200, "docs"),
    ("docs.apps.test", "/bad", false, 200, "docs-bad"),
    ("docs.apps.test", "/worse", false, 200, "docs-bad"),
    ("docs.apps.test", "/rest", false, 200, "docs"),
    ("docs-bad.apps.test", "/", false, 200, "docs-bad"),
];

/// All expected findings: the object, and a part of the finding's text. Commas at the end, months, long names, headless
/// Services, missing endpoints and Secrets are normal.
const FINDINGS: [(&str, &str); 14] = [
    ("Service star/star", "\"foo.*.bar.test\" has a star that is not its whole first label"),
    ("Service buffers/buffers", "nginx.proxyBuffers.number]: \"1\" has no effect"),
    ("Service buffers/buffers", "nginx.proxyBuffers.size]: \"16k\" has no effect"),
    ("Service buffers/buffers", "nginx.proxyBuffers.busySize]: \"8k\" has no effect"),
    ("Service key/key", "(tls.key is not the key of the certificate in tls.crt)"),
    ("Service pem/pem", "tls.crt holds no certificate"),
    ("Service external/external", "nowhere.invalid has no addresses"),
    ("Service rest/rest", "proxyDomain]: \"nobody\" has no effect"),
    ("Service docs/docs-bad", "proxyLocations]: \"/\" would take the whole host"),
    ("Deployment deis/deis-router", "nginx.serverNameHashMaxSize]: \"512k\" has no effect"),
    ("Deployment deis/deis-router", "nginx.serverNameHashBucketSize]: \"64k\" has no effect"),
    ("Deployment deis/deis-router", "nginx.proxyBuffers.size]: \"16k\" has no effect"),
    ("Deployment deis/deis-router", "nginx.proxyBuffers.busySize]: \"8k\" has no effect"),
    (
        "Deployment deis/deis-router",
        "nginx.defaultServiceEnabled]: \"true\" has no effect: there is no valid defaultServiceIP",
    ),
];

/// The stable part of a response: the endpoint returns an id of its own for each request.
fn lasting(answer: &Answer) -> String {
    let header = |name: &str| answer.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let of_endpoint = answer.headers.contains_key(endpoint::NAME);
    let told = answer.body.lines().filter(|line| of_endpoint && !line.starts_with("x-request-id: "));
    let told = told.collect::<Vec<_>>().join(", ");
    format!("{} {} {} {told}", answer.status, header(endpoint::NAME), header("location"))
}

async fn ask(dev: (SocketAddr, SocketAddr), host: &str, path: &str, tls: bool) -> Result<Answer, String> {
    if tls { https(dev.1, host, path, false).await } else { get(dev.0, host, path).await }
}

/// The current responses of the good applications.
async fn answers(dev: (SocketAddr, SocketAddr)) -> Vec<String> {
    let mut answers = Vec::new();
    for (host, path, tls, status) in GOOD {
        let answer = ask(dev, host, path, tls).await;
        let lasting = answer.map(|answer| lasting(&answer)).unwrap_or_else(|why| why);
        answers.push(format!("{status} of {host}{path} {tls}: {lasting}"));
    }
    answers
}

/// Requests the good applications until told to stop; returns the number of rounds, and the differences.
async fn asked(
    dev: (SocketAddr, SocketAddr),
    before: Vec<String>,
    stop: watch::Receiver<bool>,
) -> (u64, Vec<(String, String)>) {
    let (mut rounds, mut others) = (0, Vec::new());
    while !*stop.borrow() || rounds < ROUNDS_MIN {
        let now = answers(dev).await;
        others
            .extend(before.iter().zip(&now).filter(|(before, now)| before != now).map(|(b, n)| (b.clone(), n.clone())));
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (rounds, others)
}

/// Waits until all good applications respond with their status.
async fn served(dev: &Dev) -> Vec<String> {
    let places = (dev.http, dev.https);
    eventually("the good applications are served", || async {
        let now = answers(places).await;
        let wrong = now.iter().zip(GOOD).find(|(answer, (.., status))| !answer.contains(&format!(": {status} ")));
        wrong.map_or(Ok(now.clone()), |(answer, _)| Err(answer.clone()))
    })
    .await
}

async fn findings(dev: &Dev) -> Vec<String> {
    let page = get(dev.debug, "localhost", "/debug/findings").await.expect("findings");
    let page: Value = serde_json::from_str(&page.body).expect("JSON");
    let told = page.as_array().expect("a list").iter();
    told.map(|finding| finding["message"].as_str().expect("a message").to_owned()).collect()
}

/// Returns `true` if a finding is about an object and contains a text.
fn says(finding: &str, (object, what): (&str, &str)) -> bool {
    finding.strip_prefix(object).is_some_and(|rest| rest.starts_with(": ") && rest.contains(what))
}

/// Checks that the bad applications respond as expected, and that only their owners have findings.
async fn each_costs_its_own(dev: &Dev) {
    let places = (dev.http, dev.https);
    eventually("the bad applications answer as they should", || async {
        for (host, path, tls, status, name) in BAD {
            let answer = ask(places, host, path, tls).await?;
            let by = answer.headers.get(endpoint::NAME).map_or("", |value| value.to_str().unwrap());
            if answer.status != status || by != name {
                return Err(format!("{host}{path} {tls}: {} of {by:?}, not {status} of {name:?}", answer.status));
            }
        }
        Ok(())
    })
    .await;
    eventually("findings", || async {
        let told = findings(dev).await;
        let missing = FINDINGS.iter().find(|wanted| !told.iter().any(|told| says(told, **wanted)));
        let more = told.iter().find(|told| !FINDINGS.iter().any(|wanted| says(told, *wanted)));
        match (missing, more) {
            (None, None) => Ok(()),
            (missing, more) => Err(format!("missing {missing:?}, more {more:?} of {told:#?}")),
        }
    })
    .await;
}

/// The objects in a form that kubectl reads as several documents: text that begins with a brace is a single one for it.
fn documents(world: &World) -> String {
    format!("---\n{}", world.manifest())
}

fn router_annotations() -> Vec<String> {
    ROUTER.iter().map(|said| format!("router.deis.io/nginx.{said}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_at_run_time_affect_no_other_application() {
    let (good, mut bad) = (good().await, bad().await);
    let dev = Dev::with(&[("good.yaml", &good.manifest())], &["--source", "deis"]).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    let before = served(&dev).await;
    assert_eq!(findings(&dev).await, [""; 0], "nothing is wrong with the good ones");
    let (stop, stopped) = watch::channel(false);
    let asking = tokio::spawn(asked((dev.http, dev.https), before.clone(), stopped));

    kubectl.fed(&["apply", "-f", "-"], &documents(&bad)).await;
    let said = router_annotations();
    let mut arguments = vec!["-n", "deis", "annotate", "--overwrite", "deployment", "deis-router"];
    arguments.extend(said.iter().map(String::as_str));
    kubectl.run(&arguments).await;
    each_costs_its_own(&dev).await;
    // A namespace has a good application as well.
    bad.objects.retain(|object| object["kind"] != "Namespace");
    kubectl.fed(&["delete", "--wait=false", "-f", "-"], &documents(&bad)).await;
    eventually("the bad ones are gone", || async {
        let answer = get(dev.http, "star.apps.test", "/").await?;
        if answer.status == 404 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    stop.send_replace(true);
    let (rounds, others) = asking.await.expect("it ends");
    assert!(others.is_empty(), "{} of {rounds} rounds: {others:#?}", others.len());
    assert_eq!(answers((dev.http, dev.https)).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_at_start_affect_no_other_application() {
    let (mut good, bad) = (good().await, bad().await);
    for object in good.objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
        for said in router_annotations() {
            let (key, value) = said.split_once('=').unwrap();
            object["metadata"]["annotations"][key] = value.into();
        }
    }
    // The bad ones are read first.
    let files = [("a.yaml", bad.manifest()), ("b.yaml", good.manifest())];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let dev = Dev::with(&files, &["--source", "deis"]).await;
    served(&dev).await;
    each_costs_its_own(&dev).await;
}
