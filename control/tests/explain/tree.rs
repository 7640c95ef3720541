//! The tree of attachments, as a whole and in pages.

use tidegate_control::TreeQuery;

use super::gateway::shop;
use super::*;

#[track_caller]
fn check_tree(cluster: &Cluster, query: &TreeQuery, want: &str) {
    let got = cluster.reconciler.model().tree(query).to_string();
    let want: String = want.lines().map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect();
    assert_eq!(got, want.strip_prefix('\n').unwrap_or(&want), "\n{got}");
}

fn named(namespace: Option<&str>, name: Option<&str>) -> TreeQuery {
    let owned = |text: Option<&str>| text.map(ToOwned::to_owned);
    TreeQuery { namespace: owned(namespace), name: owned(name), ..TreeQuery::default() }
}

#[test]
fn a_gateway_shows_with_its_listeners_routes_rules_and_backends() {
    check_tree(
        &shop(),
        &named(None, None),
        "
    GatewayClass tidegate
      Gateway shop/edge (192.0.2.1)
        listener http: HTTP 80 for * on 192.0.2.1:80
          HTTPRoute shop/cart
            shop.example
              spec.rules[0] (v2): prefix /cart, header x-version
                -> shop/web:80 (weight 1, 0 endpoints)
              spec.rules[1] (put): prefix /cart, method PUT
                -> shop/web:80 (weight 1, 0 endpoints)
              spec.rules[2] (cart): prefix /cart
                -> shop/web:80 (weight 1, 0 endpoints)
          HTTPRoute shop/late
            shop.example
              spec.rules[0] (again): prefix /cart
                -> shop/web:80 (weight 1, 0 endpoints)
              spec.rules[1] (other): prefix /cart, header x-other
                -> shop/web:80 (weight 1, 0 endpoints)
          HTTPRoute shop/web
            shop.example
              spec.rules[0] (all): prefix /
                -> shop/web:80 (weight 1, 0 endpoints)
          HTTPRoute shop/wide
            **.example
              spec.rules[0] (wide): prefix /
                -> shop/web:80 (weight 1, 0 endpoints)
        listener team of ListenerSet team/more: HTTP 80 for **.team.example on 192.0.2.1:80
          HTTPRoute team/app
            a.team.example
              spec.rules[0]: prefix /
                -> status 500 (weight 1)
        refused HTTPRoute blog/away: NotAllowedByListeners: no listener of Gateway shop/edge allows HTTPRoutes of namespace blog
        refused HTTPRoute shop/elsewhere: NoMatchingParent: Gateway shop/edge has no such listener
        refused HTTPRoute shop/gone: NoMatchingParent: Gateway shop/edge has no such listener
        refused GRPCRoute shop/calls: HostnameConflict: HTTPRoute shop/wide is older and has some of the hostnames on listener http of Gateway shop/edge, which an HTTPRoute and a GRPCRoute cannot share
",
    );
}

#[test]
fn the_tree_is_filtered_by_namespace_and_name() {
    let shop = shop();
    let team = "
    GatewayClass tidegate
      Gateway shop/edge (192.0.2.1)
        listener http: HTTP 80 for * on 192.0.2.1:80
        listener team of ListenerSet team/more: HTTP 80 for **.team.example on 192.0.2.1:80
          HTTPRoute team/app
            a.team.example
              spec.rules[0]: prefix /
                -> status 500 (weight 1)
";
    check_tree(&shop, &named(Some("team"), None), team);
    check_tree(&shop, &named(None, Some("more")), team);
    check_tree(&shop, &named(Some("team"), Some("none")), "\n    nothing\n");
    // Everything that is attached to a Gateway is shown with it.
    let whole = shop.reconciler.model().tree(&named(None, None)).to_string();
    assert_eq!(shop.reconciler.model().tree(&named(Some("shop"), Some("edge"))).to_string(), whole);
}

#[test]
fn pages_hold_every_object_once() {
    let shop = shop();
    let (mut query, mut pages, mut seen) = (TreeQuery { limit: Some(2), ..TreeQuery::default() }, 0, Vec::new());
    loop {
        let page = shop.reconciler.model().tree(&query);
        pages += 1;
        let text = page.to_string();
        let objects = text.lines().map(str::trim).filter_map(|line| {
            let of = line.strip_prefix("refused ").map(|line| line.split(':').next().unwrap_or_default());
            of.or_else(|| line.starts_with("HTTPRoute").then_some(line))
        });
        seen.extend(objects.map(ToOwned::to_owned));
        let Some(next) = page.next else { break };
        assert!(text.ends_with(&format!("and more: --after {next}\n")), "{text}");
        query.after = Some(TreeQuery::read_after(&next).unwrap());
    }
    seen.sort_unstable();
    let want = [
        "GRPCRoute shop/calls",
        "HTTPRoute blog/away",
        "HTTPRoute shop/cart",
        "HTTPRoute shop/elsewhere",
        "HTTPRoute shop/gone",
        "HTTPRoute shop/late",
        "HTTPRoute shop/web",
        "HTTPRoute shop/wide",
        "HTTPRoute team/app",
    ];
    // Ten objects with the Gateway: five pages of two.
    assert_eq!((seen, pages), (want.map(ToOwned::to_owned).to_vec(), 5));
    assert!(TreeQuery::read_after("HTTPRoute/shop").is_err());
}

#[test]
fn an_ingress_is_shown_under_its_class_with_its_hosts() {
    let none = json!({});
    let objects = [
        (Kind::IngressClass, ingress_class()),
        (Kind::Ingress, ingress("web", 2026, &none, &[("Prefix", "/a"), ("Exact", "/b")])),
    ];
    check_tree(
        &Cluster::of(Options::default(), &objects),
        &TreeQuery::default(),
        "
    IngressClass tidegate
      Ingress shop/web
        web.example
          spec.rules[0].http.paths[0]: prefix /a
          spec.rules[0].http.paths[1]: exact /b
",
    );
}
