//! Lists of the router and of applications, and the client address that they apply to.

use crate::ask::{BRANCH, OFFICE, STRANGER, TRUSTED, get};
use crate::pair::Pair;
use crate::row::{check, same};
use crate::world::World;

const DOMAIN: (&str, &str) = ("platformDomain", "apps.test");
const DEFAULT: (&str, &str) = ("defaultWhitelist", "127.0.0.5");

/// Two applications: one without a list, and one with a list of its own.
async fn pair(router: &[(&str, &str)]) -> Option<Pair> {
    let mut world = World::new(router);
    world.app("plain", &[("domains", "plain")]).await;
    world.app("branch", &[("domains", "branch"), ("whitelist", "127.0.0.6")]).await;
    Pair::start(world, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_own_list_extends_the_default_one() {
    let Some(pair) = pair(&[DOMAIN, DEFAULT]).await else { return };
    let rows = vec![
        same("of the default list", get("plain.apps.test", "/").from(OFFICE), 200, &[]),
        same("of no list", get("plain.apps.test", "/").from(STRANGER), 403, &[]),
        same("of another's list", get("plain.apps.test", "/").from(BRANCH), 403, &[]),
        same("of the own list", get("branch.apps.test", "/").from(BRANCH), 200, &[]),
        same("of the default list beside an own one", get("branch.apps.test", "/").from(OFFICE), 200, &[]),
        same("of neither", get("branch.apps.test", "/").from(STRANGER), 403, &[]),
        same("health of an unknown host", get("unknown.test", "/healthz").from(STRANGER), 200, &[]),
    ];
    check(&pair, rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_own_list_replaces_the_default_one() {
    let Some(pair) = pair(&[DOMAIN, DEFAULT, ("whitelistMode", "override")]).await else { return };
    let rows = vec![
        same("of the default list", get("plain.apps.test", "/").from(OFFICE), 200, &[]),
        same("of the own list", get("branch.apps.test", "/").from(BRANCH), 200, &[]),
        same("of the default list beside an own one", get("branch.apps.test", "/").from(OFFICE), 403, &[]),
    ];
    check(&pair, rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn enforced_lists() {
    let Some(pair) = pair(&[DOMAIN, ("enforceWhitelists", "true")]).await else { return };
    let rows = vec![
        same("no list", get("plain.apps.test", "/").from(OFFICE), 403, &[]),
        same("of the own list", get("branch.apps.test", "/").from(BRANCH), 200, &[]),
        same("of no list", get("branch.apps.test", "/").from(OFFICE), 403, &[]),
    ];
    check(&pair, rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_addresses_for_whitelists() {
    let Some(pair) = pair(&[DOMAIN]).await else { return };
    let told = |from, chain: &str| get("branch.apps.test", "/").from(from).header("X-Forwarded-For", chain);
    let plain = |from, chain: &str| get("plain.apps.test", "/").from(from).header("X-Forwarded-For", chain);
    let rows = vec![
        same("a trusted peer tells", told(TRUSTED, "127.0.0.6"), 200, &["sees x-forwarded-for: 127.0.0.6"]),
        same("a stranger tells", told(STRANGER, "127.0.0.6"), 403, &[]),
        same("the last one counts", told(TRUSTED, "127.0.0.6, 192.0.2.1"), 403, &[]),
        same(
            "trusted ones are passed over",
            told(TRUSTED, "192.0.2.1, 127.0.0.6,127.0.0.3"),
            200,
            &["sees x-forwarded-for: 127.0.0.6"],
        ),
        same("all are trusted", plain(TRUSTED, "127.0.0.2, 127.0.0.3"), 200, &["sees x-forwarded-for: 127.0.0.2"]),
        same("a word in the chain", plain(TRUSTED, "192.0.2.1, nobody, 127.0.0.3"), 200, &[]),
        same("nothing but a word", plain(TRUSTED, "nobody"), 200, &["sees x-forwarded-for: 127.0.0.2"]),
        same("an empty chain", plain(TRUSTED, ""), 200, &["sees x-forwarded-for: 127.0.0.2"]),
        same("no chain", get("plain.apps.test", "/").from(TRUSTED), 200, &["sees x-forwarded-for: 127.0.0.2"]),
        same("an address with a port", plain(TRUSTED, "192.0.2.1:4711"), 200, &["sees x-forwarded-for: 192.0.2.1"]),
        same("IPv6", plain(TRUSTED, "2001:db8::1"), 200, &["sees x-forwarded-for: 2001:db8::1"]),
        same(
            "two headers",
            plain(TRUSTED, "192.0.2.1").header("X-Forwarded-For", "192.0.2.2"),
            200,
            &["sees x-forwarded-for: 192.0.2.2"],
        ),
        same(
            "what a stranger tells is not passed on",
            plain(STRANGER, "192.0.2.1"),
            200,
            &["sees x-forwarded-for: 127.0.0.1"],
        ),
    ];
    check(&pair, rows).await;
}
