//! A lookup through the index has the same result as trying every route in order of precedence.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::sync::{Arc, LazyLock};

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_config::model::{
    Action, Conditions, Extent, Head, HostPattern, HostRoutes, Origin, PathMatch, RegexCase, Route, Steps, TextMatch,
    ValueMatch,
};
use tidegate_config::object::{Age, Kind, ObjectName, ObjectRef};

/// Hosts with at most this many routes have no index.
const UNINDEXED_MAX: usize = 8;

/// A randomly drawn route.
#[derive(Clone, Debug)]
struct Drawn {
    path: PathMatch,
    method: Option<&'static str>,
    header: Option<&'static str>,
    created_s: i64,
}

impl Drawn {
    fn plain(path: PathMatch) -> Self {
        Self { path, method: None, header: None, created_s: 0 }
    }

    fn route(&self, position: u32) -> Arc<Route> {
        let name = ObjectName::new("shop", format!("web-{}", position % 3));
        let origin = Origin {
            object: ObjectRef::new(Kind::Ingress, name.clone()),
            age: Age { created_s: self.created_s, name },
            field: format!("spec.rules[0].http.paths[{position}]").into(),
            position,
        };
        let header =
            self.header.map(|value| ValueMatch { name: "x-kind".into(), value: TextMatch::Exact(value.into()) });
        Arc::new(Route {
            conditions: Conditions {
                methods: self.method.map(Arc::from).into_iter().collect(),
                headers: header.into_iter().collect(),
                queries: Box::default(),
            },
            ..Route::new(origin, self.path.clone(), Action::Forward(Box::default()))
        })
    }
}

/// The head of a request with at most one header, `x-kind`.
#[derive(Clone, Debug)]
struct Request {
    path: String,
    method: &'static str,
    kind: Option<&'static str>,
}

impl Head for Request {
    fn method(&self) -> &str {
        self.method
    }
    fn path(&self) -> &str {
        &self.path
    }
    fn query(&self) -> Option<&str> {
        None
    }
    fn authority(&self) -> Option<&str> {
        None
    }
    fn header(&self, name: &str) -> Option<&[u8]> {
        self.kind.filter(|_| name == "x-kind").map(str::as_bytes)
    }
    fn each_value(&self, name: &str, see: &mut dyn FnMut(&[u8])) {
        self.header(name).into_iter().for_each(see);
    }
}

/// A small alphabet, so that paths of rules and requests often match, with every character that is special in path
/// patterns.
fn path() -> impl Strategy<Value = String> {
    let element = prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "ab", "abc"]),
        1 => prop::sample::select(vec!["{a}", "{*a}", "{*rest}", "{", "}", "{{", "}}", "{a", "a}", "}{", "*", ":a", "ü", "üb", "日本", ".a"]),
    ];
    (vec(element, 0..5), any::<bool>()).prop_map(|(elements, slash)| {
        let path: String = elements.iter().flat_map(|element| ["/", *element]).collect();
        if path.is_empty() || slash { path + "/" } else { path }
    })
}

/// Compiled once, because compiling takes longer than everything else.
static EXPRESSIONS: LazyLock<Vec<PathMatch>> = LazyLock::new(|| {
    let patterns = ["^/a", "b$", "^/[ab]+/", "ü", "^/$"];
    patterns.map(|pattern| PathMatch::regex(pattern, RegexCase::Sensitive, Extent::Anywhere).unwrap()).into()
});

fn path_match() -> impl Strategy<Value = PathMatch> {
    prop_oneof![
        4 => path().prop_map(|path| PathMatch::exact(&path).unwrap()),
        6 => path().prop_map(|path| PathMatch::prefix(&path).unwrap()),
        1 => path().prop_map(|path| PathMatch::prefix_characters(&path).unwrap()),
        1 => prop::sample::select(&**EXPRESSIONS),
    ]
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let path = path_match();
    let method = prop::option::weighted(0.2, Just("GET"));
    let header = prop::option::weighted(0.2, prop::sample::select(vec!["x", "y"]));
    (path, method, header, 0i64..3).prop_map(|(path, method, header, created_s)| Drawn {
        path,
        method,
        header,
        created_s,
    })
}

fn request() -> impl Strategy<Value = Request> {
    // A path that continues without a slash is another element; one more slash is a level below it.
    let path = (path(), prop::sample::select(vec!["", "", "", "x", "/", "}", "a", "ü"]))
        .prop_map(|(path, end)| format!("{path}{end}"));
    let method = prop::sample::select(vec!["GET", "POST"]);
    let kind = prop::option::of(prop::sample::select(vec!["x", "y"]));
    (path, method, kind).prop_map(|(path, method, kind)| Request { path, method, kind })
}

fn host_routes(drawn: &[Drawn], fallback: Option<&Drawn>) -> HostRoutes {
    let routes = (0..).zip(drawn).map(|(position, drawn)| drawn.route(position)).collect();
    HostRoutes::new(HostPattern::parse("shop.example").unwrap(), routes, fallback.map(|drawn| drawn.route(999)))
}

/// The reference: every route in order of precedence, tried one by one.
fn scan<'a>(ordered: &'a [Arc<Route>], path: &str) -> Vec<&'a Arc<Route>> {
    ordered.iter().filter(|route| route.path.matches(path, &Steps::of_request())).collect()
}

fn check(drawn: &[Drawn], fallback: Option<&Drawn>, requests: &[Request]) -> Result<(), TestCaseError> {
    let host = host_routes(drawn, fallback);
    let routes = (0..).zip(drawn).map(|(position, drawn)| drawn.route(position)).collect();
    check_host(&host, routes, requests)
}

fn check_host(host: &HostRoutes, mut ordered: Vec<Arc<Route>>, requests: &[Request]) -> Result<(), TestCaseError> {
    prop_assert_eq!(host.indexed(), ordered.len() > UNINDEXED_MAX, "{:?}", host);
    prop_assert_eq!(host.len(), ordered.len());
    ordered.sort_by(|a, b| a.precedence().cmp(&b.precedence()));
    prop_assert_eq!(ordered.iter().collect::<Vec<_>>(), host.routes());
    for request in requests {
        let want = scan(&ordered, &request.path);
        let got: Vec<_> = host.candidates(&request.path, &Steps::of_request()).collect();
        prop_assert_eq!(&got, &want, "{}", &request.path);
        let want = want
            .into_iter()
            .find(|route| route.conditions.hold(request, &Steps::of_request()))
            .or_else(|| host.fallback());
        prop_assert_eq!(host.find(&request.path, request, &Steps::of_request()), want, "{:?}", request);
    }
    Ok(())
}

/// Paths with many common first segments, often more than the index distinguishes.
fn deep_path() -> impl Strategy<Value = String> {
    let first = prop::sample::select(vec!["", "", "/a", "/a/b", "/a/b/c/d/e/f/g", "/a/b/c/d/e/f/g/h/i"]);
    let last = prop_oneof![3 => (0..120_u32).prop_map(|number| format!("/{number}")), 1 => path()];
    (first, last).prop_map(|(first, last)| format!("{first}{last}"))
}

/// A route of a host with many routes.
fn one_of_many() -> impl Strategy<Value = Drawn> {
    let path = prop_oneof![
        4 => deep_path().prop_map(|path| PathMatch::prefix(&path).unwrap()),
        4 => deep_path().prop_map(|path| PathMatch::exact(&path).unwrap()),
        1 => path_match(),
    ];
    (path, drawn()).prop_map(|(path, drawn)| Drawn { path, ..drawn })
}

fn one_of_many_requests() -> impl Strategy<Value = Request> {
    let path = (deep_path(), prop::sample::select(vec!["", "", "/", "/x", "x"])).prop_map(|(path, end)| path + end);
    (path, request()).prop_map(|(path, request)| Request { path, ..request })
}

/// The effect of some routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Does {
    Come,
    Go,
    Change,
}

fn does() -> impl Strategy<Value = Does> {
    prop::sample::select(vec![Does::Come, Does::Come, Does::Go, Does::Change])
}

/// Another route at the same position.
fn renamed(route: &Arc<Route>) -> Arc<Route> {
    let name = format!("{}x", route.log_name.as_deref().unwrap_or_default());
    Arc::new(Route { log_name: Some(name.into()), ..Route::clone(route) })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_agrees_with_a_scan(
        drawn in vec(drawn(), 0..40),
        fallback in prop::option::of(drawn()),
        requests in vec(request(), 1..30),
    ) {
        check(&drawn, fallback.as_ref(), &requests)?;
    }

    #[test]
    fn any_text_can_be_a_path(texts in vec("/\\PC{0,12}", 4..12), others in vec("/\\PC{0,12}", 0..10)) {
        let drawn: Vec<Drawn> = texts.iter().flat_map(|text| {
            let kinds = [PathMatch::exact(text), PathMatch::prefix(text), PathMatch::prefix_characters(text)];
            kinds.into_iter().flatten().map(Drawn::plain)
        }).collect();
        let below = texts.iter().flat_map(|text| [text.clone(), format!("{text}/"), format!("{text}/x"), format!("{text}x")]);
        let requests: Vec<Request> = below.chain(others)
            .map(|path| Request { path, method: "GET", kind: None })
            .collect();
        check(&drawn, None, &requests)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    /// Grows and shrinks the host, so that shards are split and joined.
    #[test]
    fn a_changed_index_agrees_with_a_scan(
        drawn in vec(one_of_many(), 0..400),
        rounds in vec((0_u32..400, 0_u32..400, does()), 1..12),
        requests in vec(one_of_many_requests(), 1..30),
    ) {
        let all: Vec<Arc<Route>> = (0..).zip(&drawn).map(|(position, drawn)| drawn.route(position)).collect();
        let mut there: Vec<Arc<Route>> = Vec::new();
        let mut host = host_routes(&[], None);
        for (from, to, does) in rounds {
            let picked = |route: &&Arc<Route>| (from.min(to)..from.max(to)).contains(&route.origin.position);
            let gone: Vec<_> = there.iter().filter(picked).filter(|_| does != Does::Come).cloned().collect();
            let come: Vec<_> = match does {
                Does::Go => Vec::new(),
                Does::Change => gone.iter().map(renamed).collect(),
                Does::Come => {
                    let is_there = |route: &Arc<Route>| there.iter().any(|it| it.origin == route.origin);
                    all.iter().filter(picked).filter(|route| !is_there(route)).cloned().collect()
                }
            };
            host = host.changed(&gone, &come);
            there.retain(|route| !gone.contains(route));
            there.extend(come);
            check_host(&host, there.clone(), &requests)?;
        }
        prop_assert_eq!(&host, &HostRoutes::new(host.host.clone(), there, None));
    }
}

#[test]
fn ten_thousand_paths_are_indexed() {
    let path = |number: u32| format!("/shop/{}/{{item}}/{number}", number % 100);
    let drawn: Vec<Drawn> = (0..10_000).map(|n| Drawn::plain(PathMatch::prefix(&path(n)).unwrap())).collect();
    let host = host_routes(&drawn, None);
    assert!(host.indexed());
    for number in [0, 1, 99, 100, 5000, 9999] {
        let below = format!("{}/below", path(number));
        let found: Vec<_> = host.candidates(&below, &Steps::of_request()).map(|r| r.origin.position).collect();
        assert_eq!(found, [number]);
    }
    assert_eq!(host.candidates("/shop/0/{item}", &Steps::of_request()).count(), 0);
}
