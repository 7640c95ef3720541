//! Tables of tokens from clients, and of cookies for them.

use http::HeaderName;
use tidegate_config::model::{AppProtocol, Endpoint, Extent, RegexCase, SessionKey};
use tidegate_config::object::Uid;

use super::*;
use crate::sample::Sample;
use crate::sample_model::{backend_key, path, route, weighted};

const NOW: u32 = 1_700_000_000;

fn cookie(name: &str) -> SessionCookie {
    let same_site = SameSite::Lax;
    SessionCookie { name: name.into(), path: None, permanent: false, same_site, secure: None }
}

fn policy(carrier: SessionCarrier, limit_s: Option<u64>) -> SessionPersistence {
    let uid = Uid::parse("6f1de5f4-3f0c-4d5e-9a1c-2f6a0c1b7d3e").unwrap();
    let key = SessionKey::of_rule(uid, "");
    SessionPersistence { key, carrier, absolute_timeout: limit_s.map(Duration::from_secs), change_on_failure: true }
}

fn by_cookie() -> SessionPersistence {
    policy(SessionCarrier::Cookie(cookie("sticky")), None)
}

/// An endpoint of a Service, by the last byte of its address.
fn pod(last: u8) -> Endpoint {
    Endpoint::tcp(([10, 0, 0, last], 80).into(), Some(format!("pod {last}").into()))
}

/// Services `a` with the pods 1 and 2, and 3 that terminates; `b` with the pods 4 and 5; `gone` with none.
struct Services([Arc<Backend>; 3]);

impl Services {
    fn new() -> Self {
        let of = |name, ready: &[u8], draining: &[u8]| {
            let pods = |pods: &[u8]| pods.iter().map(|last| pod(*last)).collect();
            Arc::new(Backend { draining: pods(draining), ..Backend::new(backend_key(name), pods(ready)) })
        };
        Self([of("a", &[1, 2], &[3]), of("b", &[4, 5], &[]), of("gone", &[], &[])])
    }

    fn of(&self, target: &Target) -> Option<&Arc<Backend>> {
        self.0.iter().find(|backend| backend.key == target.backend)
    }
}

fn shares(weights: &[(&str, u32)]) -> Vec<WeightedTarget> {
    weights.iter().map(|(name, weight)| weighted(name, AppProtocol::Http, *weight)).collect()
}

fn written(policy: &SessionPersistence, shares: &[WeightedTarget], share: usize, last: u8) -> String {
    let token = token(policy, shares, share, pod(last).id, NOW).unwrap();
    String::from_utf8(token.to_vec()).unwrap()
}

fn led(policy: &SessionPersistence, shares: &[WeightedTarget], head: &Sample, now_s: u32) -> Option<SessionEndpoint> {
    let services = Services::new();
    returning(policy, shares, |target| services.of(target), head, now_s)
}

fn head(lines: &[String]) -> Sample {
    lines.iter().fold(Sample::get("a.test", "/"), |head, line| head.with("cookie", line))
}

fn to(share: usize, last: u8) -> Option<SessionEndpoint> {
    Some(SessionEndpoint { share, endpoint: Some(pod(last).id) })
}

#[test]
fn a_token_leads_to_its_endpoint_whatever_the_weights_are() {
    let policy = by_cookie();
    let at_first = shares(&[("a", 9), ("b", 1)]);
    for (share, last) in [(0, 1), (0, 2), (0, 3), (1, 4), (1, 5)] {
        let lines = [format!("sticky={}", written(&policy, &at_first, share, last))];
        assert_eq!(led(&policy, &at_first, &head(&lines), NOW), to(share, last));
        // Added, moved or emptied shares do not change the destination.
        let later = shares(&[("gone", 1), ("b", 0), ("a", 0)]);
        assert_eq!(led(&policy, &later, &head(&lines), NOW), to(2 - share, last));
    }
}

#[test]
fn a_session_without_its_endpoint_stays_with_its_target_while_that_has_weight() {
    let policy = by_cookie();
    let all = shares(&[("a", 1), ("b", 1), ("gone", 1)]);
    let stays = |share| Some(SessionEndpoint { share, endpoint: None });
    let lines = [format!("sticky={}", written(&policy, &all, 1, 9))];
    assert_eq!(led(&policy, &all, &head(&lines), NOW), stays(1));
    assert_eq!(led(&policy, &shares(&[("a", 1), ("b", 0)]), &head(&lines), NOW), None, "weight 0");
    assert_eq!(led(&policy, &shares(&[("a", 1)]), &head(&lines), NOW), None, "no such share");
    // An endpoint of another share does not belong to this one.
    let lines = [format!("sticky={}", written(&policy, &all, 1, 1))];
    assert_eq!(led(&policy, &all, &head(&lines), NOW), stays(1));
    let lines = [format!("sticky={}", written(&policy, &all, 2, 9))];
    assert_eq!(led(&policy, &all, &head(&lines), NOW), None, "nobody there");
}

#[test]
fn two_targets_of_one_service_differ() {
    let policy = by_cookie();
    let all = shares(&[("a", 1), ("b", 1), ("a", 0)]);
    for share in [0, 2] {
        let lines = [format!("sticky={}", written(&policy, &all, share, 1))];
        assert_eq!(led(&policy, &all, &head(&lines), NOW), to(share, 1));
    }
}

#[test]
fn the_first_valid_cookie_of_the_name_counts() {
    let policy = by_cookie();
    let all = shares(&[("a", 1), ("b", 1)]);
    let [first, second, gone] = [(0, 1), (1, 4), (0, 9)].map(|(share, last)| written(&policy, &all, share, last));
    let check = |lines: &[String], want| assert_eq!(led(&policy, &all, &head(lines), NOW), want, "{lines:?}");
    check(&[format!("a=b; sticky={first}; sticky={second}")], to(0, 1));
    check(&[format!("sticky={second}"), format!("sticky={first}")], to(1, 4));
    check(&[format!("sticky={gone}; sticky={second}")], to(1, 4));
    check(&[format!("sticky={gone}; sticky=x")], Some(SessionEndpoint { share: 0, endpoint: None }));
    check(&[format!("sticky=\"{first}\"")], to(0, 1));
    check(&[format!("  sticky={first}  ;;")], to(0, 1));
    let forged = format!("sticky={}; ", "A".repeat(TOKEN_CHARACTERS));
    check(&[format!("{}sticky={first}", forged.repeat(TOKENS_MAX - 1))], to(0, 1));
    check(&[format!("{}sticky={first}", forged.repeat(TOKENS_MAX))], None);
}

#[test]
fn an_invalid_token_is_ignored() {
    let policy = by_cookie();
    let all = shares(&[("a", 1), ("b", 1)]);
    let token = written(&policy, &all, 0, 1);
    let lines = [
        String::new(),
        "sticky".to_owned(),
        "sticky=".to_owned(),
        ";=;=".to_owned(),
        "sticky=10.0.0.1:80".to_owned(),
        format!("Sticky={token}"),
        format!("sticky2={token}"),
        format!("xsticky={token}"),
        format!("sticky ={token}"),
        format!("sticky={token}x"),
        format!("sticky={}", &token[1..]),
        format!("sticky=\"{token}"),
        format!("sticky={}", "A".repeat(1 << 20)),
        "sticky=; ".repeat(10_000),
        token.clone(),
    ];
    for line in lines {
        assert_eq!(led(&policy, &all, &head(&[line]), NOW), None);
    }
    let others = SessionPersistence {
        key: SessionKey::of_rule(Uid::parse("6f1de5f4-3f0c-4d5e-9a1c-2f6a0c1b7d3e").unwrap(), "another rule"),
        ..by_cookie()
    };
    let lines = [format!("sticky={}", written(&others, &all, 0, 1))];
    assert_eq!(led(&policy, &all, &head(&lines), NOW), None);
}

#[test]
fn a_header_carries_the_token_as_a_cookie_does() {
    let policy = policy(SessionCarrier::Header(HeaderName::from_static("x-session")), None);
    let all = shares(&[("a", 1)]);
    let token = written(&policy, &all, 0, 2);
    let with = |name: &str, value: &str| led(&policy, &all, &Sample::get("a.test", "/").with(name, value), NOW);
    assert_eq!(with("x-session", &token), to(0, 2));
    assert_eq!(with("x-session", &format!(" {token} ")), to(0, 2));
    assert_eq!(with("cookie", &format!("x-session={token}")), None);
    assert_eq!(with("x-session", "0"), None);
}

#[test]
fn a_session_ends_at_its_limit_and_not_before() {
    let limited = policy(SessionCarrier::Cookie(cookie("sticky")), Some(60));
    let all = shares(&[("a", 1)]);
    let lines = [format!("sticky={}", written(&limited, &all, 0, 1))];
    for (now_s, want) in
        [(NOW, to(0, 1)), (NOW + 59, to(0, 1)), (NOW + 60, None), (NOW - 5, to(0, 1)), (u32::MAX, None)]
    {
        assert_eq!(led(&limited, &all, &head(&lines), now_s), want, "{now_s}");
    }
    // A limit that is set later also applies to earlier sessions, and a removed one to none.
    let unlimited = by_cookie();
    assert_eq!(led(&unlimited, &all, &head(&lines), u32::MAX), to(0, 1));
    let lines = [format!("sticky={}", written(&unlimited, &all, 0, 1))];
    assert_eq!(led(&limited, &all, &head(&lines), NOW), None);
}

#[track_caller]
fn check_cookie(cookie: &SessionCookie, rule: &str, secure: bool, want: &str) {
    let mut out = Vec::new();
    let lifetime = Some(Duration::from_millis(59_500));
    write_cookie(cookie, lifetime, (&route("web", path(rule)), secure), b"TOKEN", &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), want);
}

#[test]
fn cookies_have_only_the_needed_attributes() {
    let own = cookie("a");
    check_cookie(&own, "/", false, "a=TOKEN; Path=/; HttpOnly; SameSite=Lax");
    check_cookie(&own, "/shop/", true, "a=TOKEN; Path=/shop; HttpOnly; SameSite=Lax; Secure");
    let permanent = SessionCookie { permanent: true, path: Some("/x".into()), ..own.clone() };
    check_cookie(&permanent, "/shop", false, "a=TOKEN; Path=/x; Max-Age=60; HttpOnly; SameSite=Lax");
    let always = SessionCookie { secure: Some(true), same_site: SameSite::Strict, ..own.clone() };
    check_cookie(&always, "/", false, "a=TOKEN; Path=/; HttpOnly; SameSite=Strict; Secure");
    let never = SessionCookie { secure: Some(false), ..own.clone() };
    check_cookie(&never, "/", true, "a=TOKEN; Path=/; HttpOnly; SameSite=Lax");
    let foreign = SessionCookie { same_site: SameSite::None, ..never };
    check_cookie(&foreign, "/", false, "a=TOKEN; Path=/; HttpOnly; SameSite=None; Secure");
}

#[test]
fn browsers_send_the_cookie_for_the_path_of_the_rule() {
    let check = |path: PathMatch, want: &str| assert_eq!(path_of(&path), want, "{path}");
    check(PathMatch::exact("/login").unwrap(), "/login");
    check(PathMatch::prefix("/a/b/").unwrap(), "/a/b");
    check(PathMatch::prefix("/").unwrap(), "/");
    check(PathMatch::prefix("/a/caf%C3%A9").unwrap(), "/a");
    check(PathMatch::prefix("/caf%C3%A9/a").unwrap(), "/");
    check(PathMatch::prefix("/a/b;c/d").unwrap(), "/a");
    check(PathMatch::prefix("/a%20b").unwrap(), "/");
    check(PathMatch::prefix_characters("/a/b").unwrap(), "/a");
    check(PathMatch::regex("^/a", RegexCase::Sensitive, Extent::Anywhere).unwrap(), "/");
}
