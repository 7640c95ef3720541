//! Rules of AuthPolicies that ask servers: the addresses of the servers, and the Secrets that they are shown.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidegate_config::model::auth::{
    AuthenticationMethod, CallCredentialSource, CallServer, HttpRule, KeySet, KeySource, Metadata, PathAuth,
};
use tidegate_config::model::{AppProtocol, SnapshotParts};
use tidegate_config::object::Kind;
use tidegate_control::options::{Secrets, UrlHosts};
use tidegate_control::{Event, SecretInterest};

use crate::auth_policies::{auth_policy, findings, path, with_routes};
use crate::bench::Bench;
use crate::policies::{running, running_where, running_with};

const ISSUER: &str = "https://login.example";

fn introspection(endpoint: &str) -> Value {
    let rule = json!({"endpoint": endpoint, "credentialsRef": {"name": "client"}});
    json!({"authentication": {"tokens": {"oauth2Introspection": rule}}})
}

fn metadata(http: &Value) -> Value {
    json!({"metadata": {"facts": {"http": http}}})
}

fn apply(bench: &mut Bench, rules: &Value) {
    auth_policy(bench, "g", (1, "Gateway edge", "D/merge"), rules);
    bench.reconcile();
}

fn secret(bench: &mut Bench, name: &str, entries: &[(&str, &str)]) {
    secret_in(bench, "shop", name, entries);
}

fn secret_in(bench: &mut Bench, namespace: &str, name: &str, entries: &[(&str, &str)]) {
    let data: serde_json::Map<String, Value> =
        entries.iter().map(|(name, text)| ((*name).to_owned(), STANDARD.encode(text).into())).collect();
    bench.apply(
        Kind::Secret,
        json!({"metadata": {"namespace": namespace, "name": name}, "type": "Opaque", "data": data}),
    );
    bench.reconcile();
}

fn auth(parts: &SnapshotParts) -> Arc<PathAuth> {
    path(parts, "web", 0).unwrap().auth.clone().unwrap()
}

/// The target of a server, as `Https shop/idp.test:443 10.0.0.1:443 max 64`.
fn shown(server: &CallServer) -> Option<String> {
    let target = server.target.as_ref()?;
    let fixed = target.fixed.as_ref().unwrap();
    assert_eq!(fixed.key, target.backend);
    match (&target.tls, target.protocol) {
        (None, AppProtocol::Http) => {}
        (Some(tls), AppProtocol::Https) => {
            assert_eq!(tls.server_name.as_ref(), Some(&server.host));
            assert!(tls.client.is_none() && tls.verification.as_ref().unwrap().names.is_empty());
        }
        other => panic!("{other:?}"),
    }
    let mut addresses: Vec<String> = fixed.endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect();
    assert!(fixed.endpoints.is_sorted());
    addresses.sort_unstable();
    let max = fixed.requests_max.unwrap();
    Some(format!("{:?} {} {} max {max}", target.protocol, target.backend, addresses.join(" ")))
}

fn of_introspection(parts: &SnapshotParts) -> (Option<String>, Option<(String, String)>) {
    let auth = auth(parts);
    let AuthenticationMethod::Introspection(rule) = &auth.authentication[0].rule.method else { panic!("{auth:?}") };
    let client = rule.client.as_ref();
    (shown(&rule.server), client.map(|client| (client.id.as_str().to_owned(), client.secret.as_str().to_owned())))
}

fn http(parts: &SnapshotParts) -> HttpRule {
    let auth = auth(parts);
    let Metadata::Http(rule) = &auth.metadata[0].rule else { panic!("{auth:?}") };
    rule.clone()
}

/// Compiles until the queue is empty. Returns the number of publications; none compiles a host.
fn publications(bench: &mut Bench) -> usize {
    let mut count = 0;
    while bench.reconciler.busy() {
        let step = bench.reconciler.reconcile(bench.now).expect("something waits");
        if let Some((parts, changes)) = step.published {
            bench.published = Some(parts);
            count += 1;
            let hosts = changes.units.routing.first.iter().filter(|unit| unit.to_string().starts_with("host"));
            assert_eq!(hosts.count(), 0, "an address compiles no host");
        }
    }
    count
}

fn resolve(bench: &mut Bench, name: &str, addresses: Result<&[&str], &str>) {
    let addresses = addresses.map(|all| all.iter().map(|one| one.parse().unwrap()).collect());
    bench.observe(Event::Resolved { name: name.into(), addresses: addresses.map_err(Into::into) });
}

#[test]
fn the_host_of_a_url_is_looked_up_while_a_policy_names_it() {
    let mut bench = with_routes(running());
    apply(&mut bench, &introspection("https://Idp.test/introspect"));
    bench.check_names(&["idp.test"]);
    let target = |bench: &Bench| of_introspection(bench.parts()).0;
    secret(&mut bench, "client", &[("clientID", "edge"), ("clientSecret", "s")]);
    assert_eq!((target(&bench), findings(&bench, "g")), (None, Vec::new()), "soon there is an answer");
    resolve(&mut bench, "idp.test", Ok(&["10.9.0.2", "10.9.0.1"]));
    assert_eq!(publications(&mut bench), 1);
    let both = "Https shop/idp.test:443 10.9.0.1:443 10.9.0.2:443 max 64";
    assert_eq!((target(&bench).as_deref(), findings(&bench, "g").len()), (Some(both), 0));
    resolve(&mut bench, "idp.test", Ok(&["10.9.0.3"]));
    assert_eq!(publications(&mut bench), 1);
    assert_eq!(target(&bench).as_deref(), Some("Https shop/idp.test:443 10.9.0.3:443 max 64"));
    resolve(&mut bench, "idp.test", Err("NXDOMAIN"));
    assert_eq!(publications(&mut bench), 1);
    let field = "rules.authentication[tokens].oauth2Introspection.endpoint";
    let told = [format!("{field}: idp.test has no addresses (NXDOMAIN)")];
    assert_eq!((target(&bench), findings(&bench, "g")), (None, told.to_vec()));
    apply(&mut bench, &introspection("http://other.test:8080"));
    bench.check_names(&["other.test"]);
    resolve(&mut bench, "other.test", Ok(&["2001:4860::1"]));
    assert_eq!(publications(&mut bench), 1);
    assert_eq!(target(&bench).as_deref(), Some("Http shop/other.test:8080 [2001:4860::1]:8080 max 64"));
    bench.delete(Kind::AuthPolicy, "g");
    bench.reconcile();
    bench.check_names(&[]);
}

#[test]
fn a_url_leads_to_no_address_that_objects_may_not_use() {
    let mut bench = with_routes(running());
    apply(&mut bench, &metadata(&json!({"url": "http://facts.test/{request.url_path}"})));
    let target = |bench: &Bench| shown(&http(bench.parts()).server);
    let field = "rules.metadata[facts].http.url";
    let loopback = "loopback addresses lead into the edge's own host";
    resolve(&mut bench, "facts.test", Ok(&["127.0.0.1"]));
    publications(&mut bench);
    let told = [format!("{field}: address 127.0.0.1 of facts.test is not used: {loopback}")];
    assert_eq!((target(&bench), findings(&bench, "g")), (None, told.to_vec()));
    resolve(&mut bench, "facts.test", Ok(&["127.0.0.1", "10.9.0.1"]));
    publications(&mut bench);
    assert_eq!(target(&bench).as_deref(), Some("Http shop/facts.test:80 10.9.0.1:80 max 64"));
    assert_eq!(findings(&bench, "g"), told);
    // An address is not looked up.
    apply(&mut bench, &metadata(&json!({"url": "http://10.9.0.1:81/"})));
    bench.check_names(&[]);
    assert_eq!(target(&bench).as_deref(), Some("Http shop/10.9.0.1:81 10.9.0.1:81 max 64"));
    apply(&mut bench, &metadata(&json!({"url": "http://169.254.169.254/latest"})));
    assert_eq!(target(&bench), None);
    let told =
        format!("{field}: address 169.254.169.254 is not used: link-local addresses lead to the edge's own node");
    assert_eq!(findings(&bench, "g"), [told]);
    // The API server is refused as soon as its address is known.
    apply(&mut bench, &metadata(&json!({"url": "https://10.96.0.1/"})));
    assert!(target(&bench).is_some());
    bench.observe(Event::ApiServer { sockets: Arc::new(["10.96.0.1:443".parse().unwrap()].into()) });
    bench.reconcile();
    assert_eq!(target(&bench), None);
}

#[test]
fn a_url_leads_to_no_host_that_the_operator_does_not_allow() {
    let hosts = UrlHosts::read(&["facts.test".to_owned(), "10.9.0.0/16".to_owned()]).unwrap();
    let mut bench = with_routes(running_where(|options| options.policy_url_hosts = hosts));
    let mut check = |url: &str, address: Option<&str>, want: bool| {
        apply(&mut bench, &metadata(&json!({ "url": url })));
        if let Some(address) = address {
            resolve(&mut bench, url.trim_start_matches("http://"), Ok(&[address]));
            bench.reconcile();
        }
        let told = findings(&bench, "g");
        assert_eq!((shown(&http(bench.parts()).server).is_some(), told.is_empty()), (want, want), "{url} {told:?}");
    };
    check("http://facts.test", Some("192.0.2.7"), true);
    check("http://other.test", Some("10.9.0.1"), true);
    check("http://third.test", Some("192.0.2.7"), false);
    check("http://10.9.0.1", None, true);
    check("http://192.0.2.7", None, false);
}

#[test]
fn a_rule_shows_a_secret_of_the_namespace_of_its_policy() {
    let mut bench = with_routes(running());
    apply(&mut bench, &introspection("http://10.9.0.1"));
    let client = |bench: &Bench| of_introspection(bench.parts()).1;
    let field = "rules.authentication[tokens].oauth2Introspection.credentialsRef";
    let lacks = |why: &str| vec![format!("{field}: \"client\" has no effect: it accepts no token, because {why}")];
    let missing = "Secret shop/client does not exist";
    assert_eq!((client(&bench), findings(&bench, "g")), (None, lacks(missing)));
    secret_in(&mut bench, "other", "client", &[("clientID", "edge"), ("clientSecret", "s")]);
    assert_eq!((client(&bench), findings(&bench, "g")), (None, lacks(missing)));
    secret(&mut bench, "client", &[("clientID", "edge")]);
    let why = "clientSecret of Secret shop/client is not one of its first 16 entries with a text of 1 to 4096 bytes, or \
               it is not of the type Opaque";
    assert_eq!((client(&bench), findings(&bench, "g")), (None, lacks(why)));
    let both = |secret: &str| Some(("edge".to_owned(), secret.to_owned()));
    for text in ["s1", "s2"] {
        secret(&mut bench, "client", &[("clientID", "edge"), ("clientSecret", text)]);
        assert_eq!((client(&bench), findings(&bench, "g")), (both(text), Vec::new()));
    }
    bench.delete(Kind::Secret, "client");
    bench.reconcile();
    assert_eq!((client(&bench), findings(&bench, "g")), (None, lacks(missing)));
}

#[test]
fn requests_for_facts_show_a_secret_or_get_a_token_with_one() {
    let mut bench = with_routes(running());
    let entry = json!({"name": "facts", "key": "token"});
    apply(&mut bench, &metadata(&json!({"url": "http://10.9.0.1/", "sharedSecretRef": entry})));
    let credential = |bench: &Bench| match http(bench.parts()).credential.unwrap().source {
        CallCredentialSource::Secret(secret) => secret.map(|secret| secret.as_str().to_owned()),
        CallCredentialSource::OAuth2(client) => {
            let secret = client.secret.as_ref().map(|secret| secret.as_str().to_owned());
            secret.map(|secret| format!("{secret} for {}", shown(&client.server).unwrap_or_default()))
        }
    };
    let told = |field: &str| {
        let why = "no request is made, because Secret shop/facts does not exist";
        vec![format!("rules.metadata[facts].http.{field}: \"facts\" has no effect: {why}")]
    };
    assert_eq!((credential(&bench), findings(&bench, "g")), (None, told("sharedSecretRef")));
    secret(&mut bench, "facts", &[("token", "t")]);
    assert_eq!((credential(&bench).as_deref(), findings(&bench, "g")), (Some("t"), Vec::new()));
    bench.delete(Kind::Secret, "facts");
    let oauth2 = json!({"tokenUrl": "https://10.9.0.2/token", "clientId": "edge", "clientSecretRef": entry});
    apply(&mut bench, &metadata(&json!({"url": "http://10.9.0.1/", "oauth2": oauth2})));
    assert_eq!((credential(&bench), findings(&bench, "g")), (None, told("oauth2.clientSecretRef")));
    secret(&mut bench, "facts", &[("token", "t")]);
    let want = "t for Https shop/10.9.0.2:443 10.9.0.2:443 max 64";
    assert_eq!((credential(&bench).as_deref(), findings(&bench, "g")), (Some(want), Vec::new()));
}

#[test]
fn secrets_of_rules_are_read_by_their_names() {
    let mut bench = with_routes(running_with(Secrets::Referenced { refresh: Duration::from_secs(60) }));
    bench.secrets.clear();
    apply(&mut bench, &introspection("http://10.9.0.1"));
    let wanted: Vec<String> = bench.secrets.iter().map(|interest| format!("{interest:?}")).collect();
    assert!(matches!(&*bench.secrets, [SecretInterest::Add(name)] if name.to_string() == "shop/client"), "{wanted:?}");
    secret(&mut bench, "client", &[("clientID", "edge"), ("clientSecret", "s")]);
    assert!(of_introspection(bench.parts()).1.is_some());
}

/// The URL of claims is in the discovery document of the issuer, which is fetched with its keys.
#[test]
fn claims_come_from_where_the_issuer_tells_them() {
    let mut bench = with_routes(running());
    let rules = json!({
        "authentication": {"staff": {"jwt": {"issuerUrl": ISSUER}}},
        "metadata": {"user": {"userInfo": {"identitySource": "staff"}}},
    });
    apply(&mut bench, &rules);
    let info = |bench: &Bench| {
        let auth = auth(bench.parts());
        let Metadata::UserInfo(info) = &auth.metadata[0].rule else { panic!("{auth:?}") };
        info.server.as_ref().map(|server| format!("{server}{} {}", info.path, shown(server).unwrap_or_default()))
    };
    let told = |why: &str| {
        format!(
            "rules.metadata[user].userInfo.identitySource: \"staff\" has no effect: it fetches nothing, because {why}"
        )
    };
    let fetch = |bench: &mut Bench, keys: Result<&str, &str>| {
        let read = |more: &str| {
            let key = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
            Arc::new(KeySet::read(format!(r#"{{"keys":[{key}]{more}}}"#).as_bytes()).unwrap())
        };
        let fetched = keys.map(read).map_err(Into::into);
        bench.observe(Event::KeySet { source: KeySource::Issuer(ISSUER.into()), fetched });
        bench.reconcile();
    };
    assert_eq!((info(&bench), findings(&bench, "g")), (None, Vec::new()));
    fetch(&mut bench, Err("no answer"));
    let why = told("the issuer cannot be asked for the URL: no answer");
    assert_eq!((info(&bench), findings(&bench, "g").contains(&why)), (None, true));
    fetch(&mut bench, Ok(""));
    let why = told("the discovery document of the issuer has no userinfo_endpoint");
    assert_eq!((info(&bench), findings(&bench, "g")), (None, vec![why]));
    fetch(&mut bench, Ok(r#","userinfo_endpoint":"https://a b/""#));
    assert_eq!((info(&bench), findings(&bench, "g").len()), (None, 1));
    fetch(&mut bench, Ok(r#","userinfo_endpoint":"https://me.example:444/claims?v=1""#));
    assert_eq!(info(&bench).as_deref(), Some("https://me.example:444/claims?v=1 "));
    bench.check_names(&["me.example"]);
    resolve(&mut bench, "me.example", Ok(&["10.9.0.1"]));
    bench.reconcile();
    let want = "https://me.example:444/claims?v=1 Https shop/me.example:444 10.9.0.1:444 max 64";
    assert_eq!((info(&bench).as_deref(), findings(&bench, "g")), (Some(want), Vec::new()));
}
