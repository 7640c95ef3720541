//! Tables of settings: command lines and the settings that follow from them.

use clap::Parser as _;
use tidegate_config::object::ObjectName;
use tidegate_config::project::PublicAddress;
use tidegate_control::LaneShares;
use tidegate_control::options::{HostOwnership, Keep, Pace, Publish, ServiceType, ToPods, UnconfirmedRemovals};
use tidegate_proxy::{AccessLogSink, Driver, Enforce, LimitHeaders, RateLimits};

use super::*;
use crate::args::{Args, Command};

fn run(flags: &[&str]) -> Result<Run, InvalidValue> {
    let words = ["tidegate", "run"].iter().chain(flags).copied();
    let Command::Run(args) = Args::try_parse_from(words).unwrap().command else { panic!("another command") };
    Run::try_from(&*args)
}

fn dev(flags: &[&str]) -> Result<Dev, InvalidValue> {
    let words = ["tidegate", "dev", env!("CARGO_MANIFEST_DIR")].iter().chain(flags).copied();
    let Command::Dev(args) = Args::try_parse_from(words).unwrap().command else { panic!("another command") };
    Dev::try_from(&*args)
}

#[track_caller]
fn check(flags: &[&str], complaint: &str) {
    match run(flags) {
        Ok(_) => panic!("{flags:?} is taken"),
        Err(invalid) => assert_eq!(invalid.to_string(), complaint),
    }
}

#[test]
fn errors_name_flag_value_and_reason() {
    let address = "is not an IP address with a port, such as 127.0.0.1:8080 or [::]:8080";
    check(&["--http", "8080"], &format!("--http \"8080\": {address}"));
    check(&["--https", "localhost:443"], &format!("--https \"localhost:443\": {address}"));
    check(&["--admin", ""], &format!("--admin \"\": {address}"));
    check(&["--http", "0.0.0.0:80", "--http", "off"], &format!("--http \"off\": {address}"));
    check(&["--http", "0.0.0.0:80", "--https", "0.0.0.0:80"], "--https \"0.0.0.0:80\": is given twice");
    check(&["--debug", "127.0.0.1:9180", "--admin", "127.0.0.1:9180"], "--debug \"127.0.0.1:9180\": is given twice");
    check(&["--http", "[::1]:0", "--http", "[::1]:0"], "--http \"[::1]:0\": is given twice");
    check(&["--debug", "unix:"], "--debug \"unix:\": names no path");
    check(
        &["--debug", "0.0.0.0:1"],
        "--debug \"0.0.0.0:1\": is not a loopback address; --debug-anywhere allows it, and anyone who can reach it then sees every route",
    );
    check(&["--threads", "0"], "--threads \"0\": is not between 1 and 1024");
    check(&["--threads", "two"], "--threads \"two\": invalid digit found in string");
    check(&["--client-share-max", "0"], "--client-share-max \"0\": is not between 1 and 100");
    check(&["--service-requests-max", "x"], "--service-requests-max \"x\": invalid digit found in string");
    check(&["--batch-max", "0"], "--batch-max \"0\": is not between 1 and 1000000");
    check(&["--fast-batches-max", "x"], "--fast-batches-max \"x\": invalid digit found in string");
    check(&["--unconfirmed-removals-share", "50"], "--unconfirmed-removals-share \"50\": is not between 0 and 1");
    check(&["--unconfirmed-removals-share", "NaN"], "--unconfirmed-removals-share \"NaN\": is not between 0 and 1");
    check(&["--slow-age-max", "x"], "--slow-age-max \"x\": expected number at 0");
    check(&["--grace", "2d"], "--grace \"2d\": is more than a day");
    check(&["--grace", "soon"], "--grace \"soon\": expected number at 0");
    check(&["--driver", "lean"], "--driver \"lean\": is neither both nor pingora");
    check(
        &["--access-log-format", "jsn"],
        "--access-log-format \"jsn\": is neither json, combined nor deis, and has no variable such as $status",
    );
    check(
        &["--access-log-format", "$nonesuch"],
        "--access-log-format \"$nonesuch\": names an unknown variable, $nonesuch",
    );
    assert_eq!(run(&["--limit-headers=draft"]).unwrap().edge.process.limit_headers, LimitHeaders::Draft);
    check(&["--limit-headers", "on"], "--limit-headers \"on\": is neither off nor draft");
    check(&["--server-header", "no"], "--server-header \"no\": is neither on nor off");
    check(&["--log-form", "xml"], "--log-form \"xml\": is neither text nor json");
    check(
        &["--namespace", "Shop"],
        "--namespace \"Shop\": is not the name of a namespace (lowercase letters, digits and inner hyphens)",
    );
    check(&["--trusted-proxies", "10.0.0.0/8,x"], "--trusted-proxies \"x\": is not a network such as 10.0.0.0/8");
    check(&["--trusted-proxies", "0.0.0.0/0"], "--trusted-proxies \"0.0.0.0/0\": would trust every client");
    check(&["--proxy-protocol"], "--proxy-protocol \"true\": needs --trusted-proxies: without it no header is trusted");
    check(&["--refuse-addresses", "x"], "--refuse-addresses \"x\": is not a network such as 10.0.0.0/8");
    check(&["--own-address", "me"], "--own-address \"me\": is not an IP address");
    check(
        &["--loop-token", "a b"],
        "--loop-token \"a b\": is not between 1 and 64 letters, digits and characters of !#$%&'*+-.^_`|~",
    );
    check(&["--host-ownership", "mine"], "--host-ownership \"mine\": is neither shared nor namespace");
    check(&["--watch-secrets", "some"], "--watch-secrets \"some\": is neither all nor referenced");
    let often = ["--watch-secrets", "referenced", "--secrets-poll-interval", "10ms"];
    check(&often, "--secrets-poll-interval \"10ms\": is less than a second");
    for text in ["cert", "/cert", "ns/", "a/b/c"] {
        check(
            &["--default-certificate", text],
            &format!("--default-certificate {text:?}: is not of the form NAMESPACE/NAME"),
        );
    }
    check(&["--ingress-class", ""], "--ingress-class \"\": is not between 1 and 253 characters without spaces");
}

#[test]
fn errors_about_gateways_name_the_range() {
    check(&["--source", "ingres"], "--source \"ingres\": is neither ingress, gateway, kuadrant nor deis");
    let no_address = "is neither an IP address, nor two separated by a hyphen, nor a network";
    for (text, why) in [
        ("edge", no_address),
        ("192.0.2.1-", no_address),
        ("192.0.2.1-192.0.1.1", "is a range whose end is lower than its start"),
        ("192.0.2.1-2001:db8::1", "is a range across address families"),
        ("10.0.0.0-10.0.16.0", "would make more than 4096 addresses"),
        ("10.0.0.0/16", "would make more than 4096 addresses"),
        ("2001:db8::/64", "would make more than 4096 addresses"),
        ("10.0.0.1/16", "is an address within a network, not a network such as 192.0.2.16/28"),
        ("10.0.0.0/33", "is not a network such as 192.0.2.16/28"),
        ("10.0.0.0/", "is not a network such as 192.0.2.16/28"),
        ("10.0.0.0-10.0.0.8/28", "is not a network such as 192.0.2.16/28"),
        ("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "would make more than 4096 addresses"),
    ] {
        let complaint = format!("--gateway-addresses {text:?}: {why}");
        check(&["--source", "gateway", "--gateway-addresses", text], &complaint);
    }
}

#[test]
fn the_pool_of_gateways_has_addresses_ranges_and_networks() {
    let check = |text: &str, want: &[&str]| {
        let gateway = run(&["--source", "gateway", "--gateway-addresses", text]).unwrap().edge.control.sources.gateway;
        let got: Vec<String> = gateway.unwrap().addresses.iter().map(ToString::to_string).collect();
        assert_eq!(got, want, "{text}");
    };
    check("192.0.2.1", &["192.0.2.1"]);
    check("192.0.2.1-192.0.2.2,192.0.2.2", &["192.0.2.1", "192.0.2.2"]);
    check("192.0.2.8/30", &["192.0.2.9", "192.0.2.10"]);
    check("192.0.2.8/31", &["192.0.2.8", "192.0.2.9"]);
    check("192.0.2.8/32,2001:db8::7/128", &["192.0.2.8", "2001:db8::7"]);
}

#[test]
fn gateways_get_services_or_local_addresses() {
    let services = |more: &[&str]| {
        let args = [&["--source", "gateway", "--publish-service", "tidegate/edge"], more].concat();
        run(&args).unwrap().edge.control.sources.gateway.unwrap().services
    };
    let to_pods =
        |kind, edge, ports| GatewayServices::ToPods(ToPods { kind, edge: ObjectName::new("tidegate", edge), ports });
    assert_eq!(services(&["--gateway-addresses", "192.0.2.1"]), GatewayServices::Off);
    let optional = |args: &[&str]| run(args).unwrap().edge.control.sources.gateway.map(|gateway| gateway.optional);
    assert_eq!(optional(&[]), Some(true), "it is there unless something else is asked for");
    assert_eq!((optional(&["--source=gateway"]), optional(&["--source=ingress"])), (Some(false), None));
    assert_eq!(services(&["--gateway-services", "headless"]), GatewayServices::Headless);
    let usual = to_pods(ServiceType::LoadBalancer, "edge", (20000, 29999));
    assert_eq!(services(&["--gateway-addresses", "service"]), usual);
    let all = ["--gateway-services=ClusterIP", "--edge-service=tidegate/pods", "--gateway-ports=9000-9009"];
    let other = to_pods(ServiceType::ClusterIp, "pods", (9000, 9009));
    assert_eq!(services(&[&["--gateway-addresses=service"], &all[..]].concat()), other);

    let check_with = |more: &[&str], why: &str| check(&[&["--source", "gateway"], more].concat(), why);
    let service = "--gateway-addresses=service";
    check_with(&[service], "--gateway-addresses \"service\": needs --edge-service or --publish-service");
    let both = "--gateway-addresses \"service,192.0.2.1\": mixes Services with local addresses";
    check_with(&["--gateway-addresses=service,192.0.2.1"], both);
    check_with(&["--gateway-services=NodePort"], "--gateway-services \"NodePort\": needs --gateway-addresses service");
    let publish = "--publish-service=a/b";
    let headless = "is neither LoadBalancer, NodePort nor ClusterIP, which --gateway-addresses service can have";
    let headless = format!("--gateway-services \"headless\": {headless}");
    check_with(&[service, publish, "--gateway-services=headless"], &headless);
    let ports = "is not two ports separated by a hyphen, the lower one first";
    for text in ["7", "0-9", "9-8", "1-70000"] {
        let why = format!("--gateway-ports {text:?}: {ports}");
        check_with(&[service, publish, "--gateway-ports", text], &why);
    }
    let off = "--status \"off\": prevents the creation of Services for Gateways (--gateway-services)";
    check_with(&["--status=off", "--gateway-services=headless"], off);
}

#[test]
fn run_listens_on_all_addresses_and_dev_on_loopback() {
    let run = run(&[]).unwrap().edge;
    assert_eq!(run.sockets.http, [ListenAddress { address: "0.0.0.0:8080".parse().unwrap(), flexible: false }]);
    assert_eq!(
        run.sockets.debug,
        DebugAddress::Tcp(ListenAddress { address: "127.0.0.1:9181".parse().unwrap(), flexible: false })
    );
    assert_eq!(run.drain, Drain { delay: Duration::from_secs(5), grace: Duration::from_secs(30) });
    assert_eq!((run.process.access_log, run.process.log_form), (AccessLogSink::Stdout, LogForm::Json));
    assert_eq!(run.process.driver, Driver::Both);
    assert!(!run.control.addresses.allow_loopback);
    assert_eq!(format!("{:?}", run.control.pace), format!("{:?}", Pace::default()), "the page of flags says so");
    assert_eq!(run.control.keep, Keep::default(), "and so of this");

    let dev = dev(&[]).unwrap().edge;
    assert_eq!(dev.sockets.https, [ListenAddress { address: "127.0.0.1:8443".parse().unwrap(), flexible: true }]);
    assert_eq!(dev.sockets.admin, Some(ListenAddress { address: "127.0.0.1:9180".parse().unwrap(), flexible: true }));
    assert_eq!(dev.drain.delay, Duration::ZERO);
    assert_eq!((dev.process.access_log, dev.process.log_form), (AccessLogSink::Off, LogForm::Text));
    assert!(dev.control.addresses.allow_loopback);
}

#[test]
fn given_flags_are_used() {
    let run = run(&[
        "--http",
        "[::1]:80,127.0.0.1:0",
        "--https",
        "off",
        "--admin",
        "off",
        "--debug",
        "unix:/run/t.sock",
        "--namespace",
        "b,a",
        "--namespace",
        "a",
        "--kubeconfig",
        "/k",
        "--context",
        "c",
        "--threads",
        "3",
        "--access-log",
        "/var/log/a",
        "--driver",
        "pingora",
        "--shutdown-delay",
        "1m 30s",
        "--default-certificate",
        "edge/cert",
        "--trusted-proxies",
        "10.1.2.3/8,2001:db8::1",
        "--proxy-protocol",
        "--own-address",
        "10.0.0.9",
        "--refuse-addresses",
        "172.16.0.1/12,2001:db8::7",
        "--host-ownership",
        "namespace",
        "--allow-loopback-endpoints",
        "--log-level",
        "warn,tidegate=debug",
    ])
    .unwrap();
    let sockets = run.edge.sockets;
    assert_eq!(sockets.http.iter().map(|w| w.address.to_string()).collect::<Vec<_>>(), ["[::1]:80", "127.0.0.1:0"]);
    assert_eq!((sockets.https, sockets.admin, sockets.proxy_protocol), (Vec::new(), None, true));
    assert_eq!(sockets.debug, DebugAddress::Unix("/run/t.sock".into()));
    assert_eq!(run.cluster.namespaces, [Arc::from("a"), Arc::from("b")]);
    assert_eq!(run.cluster.kubeconfig, Some(("/k".into(), Some("c".to_owned()))));
    assert_eq!(run.edge.process.threads, Some(3));
    assert_eq!(run.edge.process.access_log, AccessLogSink::File("/var/log/a".into()));
    assert_eq!(run.edge.process.driver, Driver::Pingora);
    assert_eq!(run.edge.drain.delay, Duration::from_secs(90));
    let control = run.edge.control;
    assert_eq!(control.default_certificate.unwrap().to_string(), "edge/cert");
    assert_eq!(
        control.trusted_proxies.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.0.0.0/8", "2001:db8::1/128"]
    );
    assert_eq!(*control.addresses.own, ["10.0.0.9".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(
        control.addresses.refused.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["172.16.0.0/12", "2001:db8::7/128"]
    );
    assert!(control.addresses.allow_loopback);
    assert_eq!(control.host_ownership, HostOwnership::Namespace);
}

#[test]
fn names_of_sources_and_limits_of_clients_are_configurable() {
    let named = "--source=ingress --source=gateway --source=deis --controller-class=a.example/ingress \
        --gateway-controller=a.example/gateway --deis-router=edge/router --client-connections-max=7 \
        --client-requests-max=8 --limit-counters-max=9 --counters-max=10";
    let edge = run(&named.split_whitespace().collect::<Vec<_>>()).unwrap().edge;
    let sources = edge.control.sources;
    assert_eq!(&*sources.ingress.unwrap().controller, "a.example/ingress");
    assert_eq!(&*sources.gateway.unwrap().controller, "a.example/gateway");
    assert_eq!(sources.deis.unwrap().router.to_string(), "edge/router");
    assert_eq!((edge.budget.client_connections, edge.budget.client_requests), (7, 8));
    assert_eq!((edge.counters.limit_counters_max, edge.counters.counters_max), (9, 10));
    check(
        &["--source=ingress", "--controller-class="],
        "--controller-class \"\": is not between 1 and 253 characters without spaces",
    );
    check(&["--client-connections-max=x"], "--client-connections-max \"x\": invalid digit found in string");
    check(&["--limit-counters-max=0"], "--limit-counters-max \"0\": is not between 1 and 100000000");
    check(&["--counters-max=x"], "--counters-max \"x\": invalid digit found in string");
    check(&["--client-requests-max=x"], "--client-requests-max \"x\": invalid digit found in string");
}

#[test]
fn urls_of_policies_are_configurable() {
    let hosts = |edge: &Edge, name: &str| edge.control.policy_url_hosts.allows(name, Some([192, 0, 2, 1].into()));
    let default = run(&[]).unwrap().edge;
    assert!(default.control.policy_authorities.is_none() && hosts(&default, "any.example"));
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let own = rcgen::generate_simple_self_signed(["login.example".to_owned()]).unwrap();
    let ca = file("ca.crt", &own.cert.pem());
    let named = run(&["--policy-ca", &ca, "--policy-url-hosts", "login.example,*.b.example,10.0.0.0/8"]).unwrap().edge;
    assert!(named.control.policy_authorities.is_some());
    let allowed = ["login.example", "a.b.example", "b.example", "other.example"].map(|name| hosts(&named, name));
    assert_eq!(allowed, [true, true, false, false]);
    let other = file("other", "no certificate");
    check(&["--policy-ca", &other], &format!("--policy-ca {other:?}: ca.crt holds no certificate"));
    check(
        &["--policy-url-hosts", "a.example,https://b.example"],
        "--policy-url-hosts \"https://b.example\": is neither a name, *. and a name, nor a network such as 10.0.0.0/8",
    );
}

#[test]
fn the_pace_is_configurable() {
    let flags = "--optional-kinds-grace=250ms --optional-kinds-slow-grace=3s --unconfirmed-removals-share=0.25 \
        --unconfirmed-removals-count=0 \
        --batch-max=7 --slow-batch-max=3 --fast-batches-max=2 --slow-age-max=40ms --audit-round=90s";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let pace = run(&flags).unwrap().edge.control.pace;
    let slow_age_max = Duration::from_millis(40);
    let want = Pace {
        optional_grace: Duration::from_millis(250),
        optional_slow_grace: Duration::from_secs(3),
        unconfirmed_removals: UnconfirmedRemovals { share: 0.25, count: 0 },
        share: LaneShares { batch_max: 7, slow_batch_max: 3, fast_turns_max: 2, slow_age_max, ..Pace::default().share },
        audit: Duration::from_secs(90),
        ..Pace::default()
    };
    assert_eq!(format!("{:?}", pace), format!("{want:?}"));
    let relist_interval = |flags: &[&str]| run(flags).unwrap().edge.limits.relist_interval;
    assert_eq!(relist_interval(&[]), tidegate_control::Limits::default().relist_interval);
    assert_eq!(relist_interval(&["--relist-interval=3m"]), Duration::from_secs(180));
    let secrets = |flags: &[&str]| run(flags).unwrap().edge.control.secrets;
    assert_eq!(secrets(&[]), Secrets::Watched);
    let refresh = |seconds| Secrets::Referenced { refresh: Duration::from_secs(seconds) };
    assert_eq!(secrets(&["--watch-secrets=referenced"]), refresh(300));
    assert_eq!(secrets(&["--watch-secrets=referenced", "--secrets-poll-interval=2m"]), refresh(120));
}

#[test]
fn the_timeout_of_authorisation_services_is_configurable() {
    let wait = |flags: &[&str]| run(flags).unwrap().edge.external_auth;
    assert_eq!(wait(&[]), tidegate_proxy::Options::default().upstream.external_auth, "the page of flags says so");
    assert_eq!(wait(&["--external-auth-timeout=300ms"]), Duration::from_millis(300));
    check(&["--external-auth-timeout=2days"], "--external-auth-timeout \"2days\": is more than a day");
}

#[test]
fn idle_timeouts_are_configurable() {
    let idle = |flags: &[&str]| run(flags).unwrap().edge.idle;
    let (client, usual) = (tidegate_proxy::Options::default().client, idle(&[]));
    assert_eq!((usual.client, usual.proxy), (client.keep_alive_idle, client.proxy_idle), "the page of flags says so");
    let set = idle(&["--idle-timeout=30s", "--proxy-idle-timeout=20m"]);
    assert_eq!((set.client, set.proxy), (Duration::from_secs(30), Duration::from_secs(1200)));
    check(&["--proxy-idle-timeout=2days"], "--proxy-idle-timeout \"2days\": is more than a day");
}

#[test]
fn the_least_rate_is_configurable() {
    let rates = |flags: &[&str]| run(flags).unwrap().edge.rates;
    assert_eq!(rates(&[]), RateLimits::default(), "the page of flags says so");
    let flags = ["--slow-clients=close", "--min-rate=2000", "--min-rate-grace=10s"];
    let want = RateLimits { bytes_per_second: 2000, grace: Duration::from_secs(10), enforce: Enforce::Always };
    assert_eq!(rates(&flags), want);
    assert_eq!(rates(&["--slow-clients=keep"]), RateLimits { enforce: Enforce::Never, ..RateLimits::default() });
    check(&["--slow-clients", "no"], "--slow-clients \"no\": is neither under-pressure, close nor keep");
    check(&["--min-rate", "0"], "--min-rate \"0\": is not between 1 and 1000000000");
}

#[test]
fn the_history_is_configurable() {
    let flags = ["--history-generations=7", "--history-routes=0", "--history-publications=9"];
    assert_eq!(run(&flags).unwrap().edge.control.keep, Keep { generations: 7, routes: 0, publications: 9 });
    for none in ["--history-generations=0", "--history-publications=0", "--history-routes=many"] {
        assert!(run(&[none]).is_err(), "{none}");
    }
}

#[test]
fn a_flexible_port_moves_to_a_free_one() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap();
    assert_eq!(ListenAddress { address, flexible: true }.settle().port(), 0);
    assert_eq!(ListenAddress { address, flexible: false }.settle(), address);
}

#[test]
fn status_events_and_lease_follow_from_the_flags() {
    let reporting = |flags: &[&str]| {
        let edge = run(flags).unwrap().edge;
        (edge.control.publish, edge.control.events, edge.lease)
    };
    let lease = |namespace: Option<&str>, name: &str| {
        Some(LeaseName { namespace: namespace.map(Into::into), name: name.into() })
    };
    let service = || Publish::Service(ObjectName::new("edge", "lb"));
    let addresses = || Publish::Addresses(vec![PublicAddress::of_ip("::1"), PublicAddress::of_hostname("lb.example")]);
    assert_eq!(reporting(&[]), (Publish::Nothing, true, lease(None, "tidegate")));
    assert_eq!(reporting(&["--events=off", "--source=ingress"]), (Publish::Nothing, false, None));
    assert_eq!(reporting(&["--publish-service=edge/lb"]), (service(), true, lease(None, "tidegate")));
    assert_eq!(reporting(&["--publish-service=edge/lb", "--events=off"]), (service(), false, lease(None, "tidegate")));
    assert_eq!(reporting(&["--publish-service=edge/lb", "--lease=a/b"]), (service(), true, lease(Some("a"), "b")));
    assert_eq!(reporting(&["--publish-service=edge/lb", "--status=off"]), (Publish::Nothing, false, None));
    let flag = "--publish-status-address=0:0:0:0:0:0:0:1,LB.example";
    assert_eq!(reporting(&[flag, "--lease=b"]), (addresses(), true, lease(None, "b")));
    let dev = |flags: &[&str]| dev(flags).unwrap().edge.control.publish;
    assert_eq!(dev(&[]), Publish::Addresses(vec![PublicAddress::of_ip("127.0.0.1")]));
    assert_eq!(dev(&["--status=off"]), Publish::Nothing);

    check(&["--status", "yes"], "--status \"yes\": is neither on nor off");
    check(&["--events", "yes"], "--events \"yes\": is neither on nor off");
    check(&["--publish-service", "lb"], "--publish-service \"lb\": is not of the form NAMESPACE/NAME");
    let why = "is neither an IP address nor a DNS name";
    check(&["--publish-status-address", "*.a"], &format!("--publish-status-address \"*.a\": {why}"));
    let both = ["--publish-service=edge/lb", "--publish-status-address=::1"];
    check(&both, "--publish-service \"edge/lb\": contradicts --publish-status-address");
    check(&["--lease", "a/b/c"], "--lease \"a/b/c\": is not of the form NAME or NAMESPACE/NAME");
    check(&["--lease", "/b"], "--lease \"/b\": is not of the form NAME or NAMESPACE/NAME");
}
