//! Applications of the Deis router in the whole process, as the platform's controller writes them.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use base64::Engine as _;
use http_body_util::Empty;
use rustls_pki_types::CertificateDer;
use tidegate_tests::{
    Answer, Dev, Kubectl, annotate_router, answered, certificate_of, deis, eventually, free_addresses, get, https,
    request,
};

const ROUTER: &str = include_str!("../../examples/deis/router.yaml");
const BUILDER: &str = include_str!("../../examples/deis/builder.yaml");
const BLOG: &str = include_str!("../../examples/deis/blog.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn an_application_is_served_by_its_domains() {
    let Some((dev, kubectl)) = deis(&[]).await else { return };
    answered(&dev, "blog.apps.localhost", 200).await;
    answered(&dev, "www.blog.localhost", 200).await;
    answered(&dev, "blog.elsewhere.localhost", 404).await;

    kubectl
        .run(&["-n", "blog", "annotate", "service", "blog", "--overwrite", "router.deis.io/domains=blog,new.localhost"])
        .await;
    answered(&dev, "new.localhost", 200).await;
    answered(&dev, "www.blog.localhost", 404).await;

    kubectl.run(&["-n", "blog", "scale", "deployment", "blog-web", "--replicas=0"]).await;
    answered(&dev, "blog.apps.localhost", 503).await;
    kubectl.run(&["-n", "blog", "scale", "deployment", "blog-web", "--replicas=1"]).await;
    answered(&dev, "blog.apps.localhost", 200).await;

    kubectl.run(&["-n", "blog", "label", "service", "blog", "--overwrite", "router.deis.io/routable=false"]).await;
    answered(&dev, "blog.apps.localhost", 404).await;
    kubectl.run(&["-n", "blog", "label", "service", "blog", "--overwrite", "router.deis.io/routable=true"]).await;
    answered(&dev, "blog.apps.localhost", 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_router_deployment_configures_all_applications() {
    let Some((dev, kubectl)) = deis(&[]).await else { return };
    answered(&dev, "blog.apps.localhost", 200).await;
    annotate_router(&kubectl, &["platformDomain=other.localhost"]).await;
    answered(&dev, "blog.other.localhost", 200).await;
    answered(&dev, "blog.apps.localhost", 404).await;

    annotate_router(&kubectl, &["defaultWhitelist=192.0.2.0/24"]).await;
    answered(&dev, "blog.other.localhost", 403).await;
    kubectl.run(&["-n", "blog", "annotate", "service", "blog", "router.deis.io/whitelist=127.0.0.1"]).await;
    answered(&dev, "blog.other.localhost", 200).await;

    annotate_router(&kubectl, &["ssl.enforce=true"]).await;
    let redirected = answered(&dev, "blog.other.localhost", 301).await;
    assert!(redirected.headers["location"].to_str().unwrap().starts_with("https://blog.other.localhost"));
    kubectl.run(&["-n", "blog", "scale", "deployment", "blog-web", "--replicas=0"]).await;
    answered(&dev, "blog.other.localhost", 503).await;
}

/// The first value of a header, or the empty string.
fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn applications_in_maintenance_answer_503() {
    let Some((dev, kubectl)) = deis(&[]).await else { return };
    answered(&dev, "blog.apps.localhost", 200).await;
    let maintenance = |said: &'static str| {
        let kubectl = &kubectl;
        let annotation = format!("router.deis.io/maintenance={said}");
        async move { kubectl.run(&["-n", "blog", "annotate", "service", "blog", "--overwrite", &annotation]).await }
    };
    maintenance("True").await;
    let page = answered(&dev, "blog.apps.localhost", 503).await;
    assert!(page.body.contains("<title>Site Maintenance</title>"), "{}", page.body);
    assert_eq!(header(&page, "content-type"), "text/html; charset=utf-8");
    let post = http::Request::post("/").header("host", "www.blog.localhost").body(Empty::new()).unwrap();
    assert_eq!(request(dev.http, post).await.unwrap().status, 503);
    maintenance("False").await;
    answered(&dev, "blog.apps.localhost", 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_follow_the_router_deployment() {
    let Some((dev, kubectl)) = deis(&[]).await else { return };
    answered(&dev, "blog.apps.localhost", 200).await;
    let settings = [
        "requestIDs=true",
        "requestStartHeader=true",
        "referrerPolicy=same-origin",
        "ssl.hsts.enabled=true",
        "proxyRealIpCidrs=127.0.0.0/8",
    ];
    annotate_router(&kubectl, &settings).await;

    // Plain http is redirected to https, without HSTS.
    let redirected = answered(&dev, "blog.apps.localhost", 301).await;
    assert_eq!((header(&redirected, "strict-transport-security"), header(&redirected, "x-request-id").len()), ("", 32));
    let offloaded = http::Request::get("/").header("host", "blog.apps.localhost").header("x-forwarded-proto", "https");
    let offloaded = offloaded.header("x-forwarded-for", "192.0.2.1, 192.0.2.7");
    let offloaded = offloaded.header("x-correlation-id", "mine").header("x-request-id", "forged");
    let answer = request(dev.http, offloaded.body(Empty::new()).unwrap()).await.unwrap();
    let said = |name: &str| header(&answer, name);
    assert_eq!(said("strict-transport-security"), "max-age=15552000");
    assert_eq!(said("referrer-policy"), "same-origin");
    let id = said("x-request-id");
    assert_eq!((id.len(), said("x-correlation-id")), (32, &*format!("mine,{id}")));
    let told = answer.body.to_lowercase();
    let tells = |line: &str| assert!(told.contains(line), "{line}: {told}");
    tells(&format!("x-request-id: {id}"));
    tells(&format!("x-correlation-id: mine,{id}"));
    tells("x-request-start: t=");
    tells("x-forwarded-for: 192.0.2.7");
    tells("x-forwarded-proto: https");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_hosts_answer_health_checks_only() {
    let Some((dev, _)) = deis(&[]).await else { return };
    answered(&dev, "blog.apps.localhost", 200).await;
    let status = |host: &'static str, path: &'static str| {
        let http = dev.http;
        async move { get(http, host, path).await.unwrap().status }
    };
    assert_eq!(status("unknown.localhost", "/healthz").await, 200);
    assert_eq!(status("unknown.localhost", "/healthz/").await, 200);
    assert_eq!(status("unknown.localhost", "/").await, 404);
    let own = get(dev.http, "blog.apps.localhost", "/healthz").await.unwrap();
    assert!(own.body.contains("/healthz"), "the application answers: {}", own.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_says_why_an_application_is_not_routed() {
    let Some((dev, kubectl)) = deis(&[]).await else { return };
    answered(&dev, "blog.apps.localhost", 200).await;
    kubectl.run(&["-n", "blog", "annotate", "service", "blog", "--overwrite", "router.deis.io/domains=blog:80"]).await;
    answered(&dev, "blog.apps.localhost", 404).await;
    let findings = eventually("findings", || get(dev.debug, "localhost", "/debug/findings")).await;
    assert!(findings.body.contains("names no valid domain"), "{}", findings.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn builder_connections_are_forwarded() {
    let [free] = free_addresses();
    let address = free.to_string();
    let files = [("router.yaml", ROUTER), ("builder.yaml", BUILDER)];
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let log_flag = log.to_str().unwrap();
    let arguments = ["--source", "deis", "--deis-builder-address", &address, "--access-log", log_flag];
    let dev = Dev::with(&files, &arguments).await;
    let Some(kubectl) = Kubectl::for_config(&dev.kubeconfig) else { return };
    // Its server is an echo process, which speaks HTTP.
    let answered = || async { get(free, "builder", "/over-tcp").await };
    let answer = eventually("an answer of the builder", answered).await;
    assert!(answer.body.contains("deis-builder"), "{}", answer.body);
    eventually("a line in the access log", || async {
        let text = std::fs::read_to_string(&log).map_err(|error| error.to_string())?;
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let mut of_builder = lines.filter(|line| line["outcome"] == "closed" && line["bytes_out"].as_u64() > Some(50));
        let line = of_builder.next_back().ok_or_else(|| text.clone())?;
        assert_eq!(line["object"], "Service deis/deis-builder", "{line}");
        assert_eq!((&line["protocol"], &line["client"]), (&"TCP".into(), &"127.0.0.1".into()), "{line}");
        assert!(line["upstream"].is_string() && line["bytes_in"].as_u64() > Some(20), "{line}");
        Ok(())
    })
    .await;

    // The port is closed while there is no builder.
    kubectl.run(&["-n", "deis", "delete", "service", "deis-builder"]).await;
    eventually("a refusal", || async {
        match tokio::net::TcpStream::connect(free).await {
            Err(error) => Ok(error),
            Ok(_) => Err("it still listens".to_owned()),
        }
    })
    .await;
}

/// A Secret with a certificate for these names, and the certificate.
async fn secret(kubectl: &Kubectl, namespace: &str, name: &str, names: &[&str]) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let made = made.unwrap();
    let base64 = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
    let data = serde_json::json!({
        "tls.crt": base64(made.cert.pem()),
        "tls.key": base64(made.signing_key.serialize_pem()),
    });
    let metadata = serde_json::json!({"namespace": namespace, "name": name});
    // The platform creates Secrets without a special type.
    let secret = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
    kubectl.fed(&["apply", "-f", "-"], &secret.to_string()).await;
    made.cert.der().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_come_from_the_mapping_or_the_platform() {
    let Some((dev, kubectl)) = deis(&[]).await else { return };
    answered(&dev, "www.blog.localhost", 200).await;
    let over_tls = |host: &'static str, want: u16| {
        let address = dev.https;
        let what = format!("{want} of https://{host}");
        async move {
            eventually(&what, || async {
                let answer = https(address, host, "/", true).await?;
                if answer.status == want { Ok(()) } else { Err(format!("{answer:?}")) }
            })
            .await;
        }
    };
    // Without a certificate the host is not served over TLS.
    over_tls("www.blog.localhost", 404).await;
    let own = secret(&kubectl, "blog", "www-cert", &["www.blog.localhost"]).await;
    let mapping = "router.deis.io/certificates=www.blog.localhost:www,gone.blog.localhost:gone,";
    kubectl.run(&["-n", "blog", "annotate", "service", "blog", mapping]).await;
    over_tls("www.blog.localhost", 200).await;
    assert_eq!(certificate_of(dev.https, "www.blog.localhost").await.unwrap(), own);
    // The platform's certificate is for short names alone.
    let platform = secret(&kubectl, "deis", "deis-router-platform-cert", &["*.apps.localhost"]).await;
    over_tls("blog.apps.localhost", 200).await;
    assert_eq!(certificate_of(dev.https, "blog.apps.localhost").await.unwrap(), platform);
    // The deletion of a Secret removes its domain from TLS, and nothing else.
    kubectl.run(&["-n", "blog", "delete", "secret", "www-cert"]).await;
    over_tls("www.blog.localhost", 404).await;
    answered(&dev, "www.blog.localhost", 200).await;
    over_tls("blog.apps.localhost", 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_younger_certificate_does_not_take_over_a_host() {
    let Some((dev, kubectl)) = deis(&[]).await else { return };
    answered(&dev, "www.blog.localhost", 200).await;
    // Younger applications with certificates: one for the same host, one for all names around it.
    for (name, domain) in [("same", "www.blog.localhost"), ("around", "*.blog.localhost")] {
        let service = BLOG.replace("blog,www.blog.localhost", &format!("{name},{domain}")).replace("blog", name);
        // The name of the domain contains the old name, which must stay.
        let service = service.replace(&domain.replace("blog", name), domain);
        kubectl.fed(&["apply", "-f", "-"], &service).await;
        secret(&kubectl, name, "tls-cert", &[domain]).await;
        let mapping = format!("router.deis.io/certificates={domain}:tls");
        kubectl.run(&["-n", name, "annotate", "service", name, &mapping]).await;
    }
    let over_tls = |host: &'static str| {
        let address = dev.https;
        async move { https(address, host, "/", true).await.unwrap() }
    };
    eventually("the wildcard is served over TLS", || async {
        let answer = over_tls("other.blog.localhost").await;
        if answer.status == 200 && answer.body.contains("around") { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    // The host is not served over TLS, and no other certificate stands in for it.
    let answer = over_tls("www.blog.localhost").await;
    assert_eq!(answer.status, 404, "{answer:?}");
    let answer = answered(&dev, "www.blog.localhost", 200).await;
    assert!(answer.body.contains("blog-web"), "{}", answer.body);
}
