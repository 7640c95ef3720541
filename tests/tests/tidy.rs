//! Project rules beyond the compiler's. Each is a function that returns its complaints.

#![allow(clippy::expect_used, reason = "a test may fail loudly")]

#[path = "tidy/named_tests.rs"]
mod named_tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tidegate_config::object::Kind;

const CRATES: [&str; 7] = ["config", "control", "proxy", "lite", "app", "tests", "bench"];
const METHODS_MAX: usize = 40;
/// Types with more methods, and their number, which may only fall.
const LARGE_TYPES: [(&str, &str, usize); 1] = [("lite", "State", 52)];
const WORDS_NOT_USED: [&str; 8] = ["manager", "handler", "helper", "util", "utils", "common", "info", "processor"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Every Rust file of the workspace, with its path from the root.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for name in CRATES {
        walk(&root().join(name), &mut found);
    }
    found.sort();
    found
}

fn walk(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root()).expect("inside the workspace").to_string_lossy().into_owned();
            found.push((name, fs::read_to_string(&path).expect("UTF-8")));
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[track_caller]
fn check(rule: impl Fn(&str, &str) -> Option<String>) {
    let complaints: Vec<String> = sources()
        .iter()
        .filter_map(|(name, text)| rule(name, text).map(|complaint| format!("{name}: {complaint}")))
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn files_begin_with_a_module_comment() {
    check(|_, text| (!text.starts_with("//!")).then(|| "does not start with //!".to_owned()));
}

/// rustfmt wraps code and leaves comments as they are.
#[test]
fn comments_are_at_most_120_columns_wide() {
    check(|_, text| {
        let is_wide = |line: &str| line.trim_start().starts_with("//") && line.chars().count() > 120;
        let wide = text.lines().enumerate().find(|(_, line)| is_wide(line));
        wide.map(|(number, _)| format!("the comment in line {} is too wide", number + 1))
    });
}

/// The inherent methods of each type of a crate by its name; tests do not count.
fn methods(krate: &str) -> BTreeMap<String, usize> {
    let prefix = format!("{krate}/src/");
    let mut counts = BTreeMap::new();
    for (name, text) in sources() {
        if !name.starts_with(&prefix) || name.contains("tests") {
            continue;
        }
        let mut of: Option<String> = None;
        for line in text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().lines() {
            if line.starts_with("impl") && !line.contains(" for ") {
                let generic = line.strip_prefix("impl<").and_then(|rest| rest.split_once("> "));
                let rest = generic.map_or_else(|| line.trim_start_matches("impl "), |(_, rest)| rest);
                of = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned);
            } else if line.starts_with('}') {
                of = None;
            } else if let Some(of) = of.as_ref().filter(|_| line.starts_with("    ") && !line.starts_with("     "))
                && ["    fn ", "    pub", "    const fn ", "    async fn "].iter().any(|start| line.starts_with(start))
                && line.contains("fn ")
            {
                *counts.entry(of.clone()).or_default() += 1;
            }
        }
    }
    counts
}

#[test]
fn types_have_few_methods() {
    let mut complaints = Vec::new();
    for krate in ["config", "control", "proxy", "lite", "app"] {
        for (name, count) in methods(krate) {
            let large = LARGE_TYPES.iter().find(|(of, large, _)| *of == krate && *large == name);
            match large {
                None if count > METHODS_MAX => complaints.push(format!("{krate}: {name} has {count} methods")),
                Some((.., known)) if count != *known => {
                    complaints.push(format!("{krate}: {name} has {count} methods, where {known} are known"));
                }
                None | Some(_) => {}
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// The modules of a crate, each with the others that its files import; tests do not count. Those that are one file
/// count only if `single_files` is set.
fn imports_of_modules(krate: &str, single_files: bool) -> BTreeMap<String, BTreeSet<String>> {
    let prefix = format!("{krate}/src/");
    let files: Vec<(String, String)> = sources()
        .into_iter()
        .filter_map(|(name, text)| Some((name.strip_prefix(&prefix)?.to_owned(), text)))
        .filter(|(name, _)| !name.ends_with("/tests.rs") && !name.contains("/tests/"))
        .collect();
    let module = |name: &str| name.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned();
    let counts = |name: &str| single_files || name.contains('/');
    let mut imports: BTreeMap<String, BTreeSet<String>> =
        files.iter().filter(|(name, _)| counts(name)).map(|(name, _)| (module(name), BTreeSet::new())).collect();
    let modules: BTreeSet<String> = imports.keys().cloned().collect();
    for (name, text) in &files {
        let Some(of) = imports.get_mut(&module(name)) else { continue };
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let names = line
                .split("crate::")
                .skip(1)
                .filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next());
            of.extend(names.filter(|name| modules.contains(*name)).map(ToOwned::to_owned));
        }
        of.remove(&module(name));
    }
    imports
}

#[test]
fn folders_do_not_import_each_other_in_circles() {
    let check = |krate: &str, single_files: bool| {
        let mut imports = imports_of_modules(krate, single_files);
        assert!(!imports.is_empty(), "{krate} has no modules");
        // A module that imports none of those left is in no circle.
        while let Some(last) = imports.iter().find(|(_, of)| of.is_empty()).map(|(name, _)| name.clone()) {
            imports.remove(&last);
            for of in imports.values_mut() {
                of.remove(&last);
            }
        }
        assert!(imports.is_empty(), "{krate}: {imports:?}");
    };
    check("config", true);
    check("control", true);
    check("lite", true);
    check("proxy", true);
    check("app", true);
}

#[test]
fn decision_code_is_synchronous() {
    let pure = |name: &str| {
        let control = [
            "sources/",
            "attachment/",
            "topology/",
            "compile/",
            "world.rs",
            "queue/mod.rs",
            "queue/lanes.rs",
            "reconcile.rs",
            "reconcile/",
            "explain.rs",
            "explain/",
        ];
        name.starts_with("config/src/") || control.iter().any(|path| name.starts_with(&format!("control/src/{path}")))
    };
    // `awaited` and `awaiting` are words of make before break.
    let awaits = |text: &str| text.split(".await").skip(1).any(|rest| !rest.starts_with(|it: char| it.is_alphabetic()));
    let has_async = |text: &str| text.contains("async fn") || text.contains("async move") || awaits(text);
    check(|name, text| (pure(name) && has_async(text)).then(|| "is async".to_owned()));
}

#[test]
fn the_model_depends_on_no_external_format() {
    let outside = ["k8s_openapi", "kube::", "serde_json", "pingora"];
    // What expressions of policies see of clients is JSON: the claims of tokens, the metadata of Secrets.
    let is_allowed = |name: &str, word: &str| word == "serde_json" && name.starts_with("config/src/model/policy/");
    check(|name, text| {
        let found = outside.iter().find(|word| text.contains(**word) && !is_allowed(name, word))?;
        name.starts_with("config/src/model/").then(|| format!("names {found}"))
    });
}

#[test]
fn crates_depend_only_on_allowed_crates() {
    let may = |name: &str| -> &[&str] {
        match name {
            "control" | "proxy" => &["config"],
            "app" => &["config", "control", "proxy", "lite"],
            "bench" | "tests" => &["config", "control", "proxy", "lite", "app"],
            _ => &[],
        }
    };
    for name in CRATES {
        let manifest = read(&format!("{name}/Cargo.toml"));
        let normal = manifest.split("[dev-dependencies]").next().expect("a manifest");
        for other in CRATES.iter().filter(|other| **other != name && !may(name).contains(other)) {
            assert!(!normal.contains(&format!("tidegate-{other}.workspace")), "{name} must not depend on {other}");
        }
    }
}

#[test]
fn one_file_uses_arc_swap() {
    let code = |name: &str| name.contains("/src/") && name != "config/src/published.rs";
    check(|name, text| (code(name) && text.contains("arc_swap::")).then(|| "uses arc-swap".to_owned()));
}

#[test]
fn file_names_are_specific() {
    check(|name, _| {
        let stem = Path::new(name).file_stem()?.to_string_lossy().into_owned();
        stem.split('_').any(|word| WORDS_NOT_USED.contains(&word)).then(|| "has a name that says nothing".to_owned())
    });
}

/// Checks both directions: every file is on the map, and every file on the map exists.
#[test]
fn architecture_names_every_file() {
    let map = read("ARCHITECTURE.md");
    let named: BTreeSet<&str> =
        map.split('`').skip(1).step_by(2).filter(|text| text.contains('/') && !text.contains(' ')).collect();
    let missing: Vec<String> = sources()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| name.contains("/src/") && !name.starts_with("bench/") && !name.starts_with("tests/"))
        .filter(|name| {
            let folder = name.trim_end_matches(".rs");
            let on_map = Path::new(name).ancestors().map(|path| path.to_string_lossy().into_owned());
            let crate_root = |path: &str| path.ends_with("/src") || path.ends_with("src/") || !path.contains('/');
            !on_map.filter(|path| !crate_root(path)).any(|path| {
                named.iter().any(|text| text.trim_end_matches('/') == path || text.trim_end_matches('/') == folder)
            })
        })
        .collect();
    assert!(missing.is_empty(), "not on the map of ARCHITECTURE.md: {missing:#?}");
    let is_path = |text: &&&str| CRATES.iter().any(|name| text.starts_with(&format!("{name}/")));
    let stale: Vec<&&str> = named.iter().filter(is_path).filter(|text| !root().join(text).exists()).collect();
    assert!(stale.is_empty(), "on the map of ARCHITECTURE.md, but not there: {stale:#?}");
}

/// Every document of the manifests of a folder.
fn manifests(folder: &str) -> Vec<Value> {
    let files = fs::read_dir(root().join("deploy").join(folder)).expect("manifests");
    let texts = files.map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("UTF-8"));
    texts.flat_map(|text| serde_saphyr::from_multiple::<Value>(&text).expect("YAML")).collect()
}

/// The rights of the roles of a kind in a folder: group, resource and verb.
fn allowed(folder: &str, kind: &str) -> BTreeSet<(String, String, String)> {
    let words = |rule: &Value, field: &str| -> Vec<String> {
        let words = rule[field].as_array().unwrap_or_else(|| panic!("{field} of {rule}"));
        words.iter().map(|word| word.as_str().expect("a word").to_owned()).collect()
    };
    let mut allowed = BTreeSet::new();
    for document in manifests(folder) {
        if document["kind"] != kind {
            continue;
        }
        for rule in document["rules"].as_array().expect("rules") {
            let mut fields: Vec<&String> = rule.as_object().expect("a rule").keys().collect();
            let named = if rule["resourceNames"].is_null() { Vec::new() } else { words(rule, "resourceNames") };
            fields.retain(|field| *field != "resourceNames");
            assert_eq!(fields, ["apiGroups", "resources", "verbs"], "{rule}");
            for group in words(rule, "apiGroups") {
                for resource in words(rule, "resources") {
                    let resource = [&[resource], &*named].concat().join(" ");
                    allowed
                        .extend(words(rule, "verbs").into_iter().map(|verb| (group.clone(), resource.clone(), verb)));
                }
            }
        }
    }
    allowed
}

#[test]
fn the_roles_allow_exactly_the_used_verbs() {
    let right = |group: &str, resource: &str, verb: &str| (group.to_owned(), resource.to_owned(), verb.to_owned());
    let reads = |kind: Kind| ["list", "watch"].map(|verb| right(kind.group(), kind.plural(), verb));
    // Deployments are those of the Deis router, whose own rights are in deploy/deis.
    let of_gateways = |kind: &Kind| kind.is_custom() || matches!(kind, Kind::Namespace | Kind::ConfigMap);
    let watched = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Deployment && !of_gateways(kind)).flat_map(reads);
    let told = ["create", "patch"].map(|verb| right("events.k8s.io", "events", verb));
    let written = [right("networking.k8s.io", "ingresses/status", "patch")].into_iter().chain(told.clone());
    assert_eq!(allowed("manifests", "ClusterRole"), watched.chain(written).collect::<BTreeSet<_>>());
    let election = [("leases", "create"), ("leases tidegate", "get"), ("leases tidegate", "update")];
    let election = election.map(|(resource, verb)| right("coordination.k8s.io", resource, verb));
    assert_eq!(allowed("manifests", "Role"), BTreeSet::from(election.clone()));

    // In place of the Deis router: Secrets by name, its own Deployment alone, and no Ingress.
    let applications = [Kind::Service, Kind::EndpointSlice].into_iter().flat_map(reads);
    let secrets = right(Kind::Secret.group(), Kind::Secret.plural(), "get");
    assert_eq!(allowed("deis", "ClusterRole"), applications.chain([secrets]).chain(told.clone()).collect());
    let router = ["list", "watch"].map(|verb| right(Kind::Deployment.group(), "deployments deis-router", verb));
    assert_eq!(allowed("deis", "Role"), election.iter().cloned().chain(router).collect());

    let definitions = ["list", "watch"].map(|verb| right("apiextensions.k8s.io", "customresourcedefinitions", verb));
    let watched = Kind::ALL.into_iter().filter(of_gateways).flat_map(reads).chain(definitions.clone());
    let told = Kind::ALL.into_iter().filter(|kind| kind.has_conditions());
    let writes = |kind: Kind| {
        let status = format!("{}/status", kind.plural());
        [right(kind.group(), kind.plural(), "get"), right(kind.group(), &status, "patch")]
    };
    let written = told.flat_map(writes);
    let held = [right(Kind::GatewayClass.group(), Kind::GatewayClass.plural(), "patch")];
    assert_eq!(allowed("gateway", "ClusterRole"), watched.chain(written).chain(held).collect::<BTreeSet<_>>());

    // Without the Gateway API.
    let policies = Kind::ALL.into_iter().filter(|kind| kind.is_inherited_policy());
    let policies = policies.flat_map(|kind| reads(kind).into_iter().chain(writes(kind)));
    assert_eq!(allowed("policies", "ClusterRole"), policies.chain(definitions).collect());

    let reviews = [("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")];
    let reviews = reviews.map(|(group, resource)| right(group, resource, "create"));
    assert_eq!(allowed("reviews", "ClusterRole"), BTreeSet::from(reviews));
}

/// Checks both directions: every metric is documented, and every documented metric exists.
#[test]
fn metrics_are_documented() {
    let quoted = |text: &str, quote: char| -> BTreeSet<String> {
        let ours = |word: &&str| word.starts_with("tidegate_") || word.starts_with("workqueue_");
        let named = text.split(quote).filter(ours);
        let plain = |word: &&str| word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let own_crate = |word: &&str| CRATES.iter().any(|name| **word == format!("tidegate_{name}"));
        named.filter(plain).filter(|word| !own_crate(word)).map(str::to_owned).collect()
    };
    let mut in_code = BTreeSet::new();
    for (name, text) in sources() {
        if ["control/src/", "proxy/src/", "app/src/"].iter().any(|folder| name.starts_with(folder)) {
            in_code.extend(quoted(&text, '"'));
        }
    }
    let in_docs = quoted(&read("docs/metrics.md"), '`');
    assert_eq!(in_code.difference(&in_docs).collect::<Vec<_>>(), Vec::<&String>::new(), "not in docs/metrics.md");
    assert_eq!(in_docs.difference(&in_code).collect::<Vec<_>>(), Vec::<&String>::new(), "in docs/metrics.md only");
}

/// The metrics that no test names: no input makes a traffic thread fail.
const UNTESTED_METRICS: [&str; 1] = ["tidegate_traffic_thread_restarts_total"];

/// A metric that is never counted, or under another name, is of no use on the day that an operator looks at it.
#[test]
fn every_documented_metric_is_named_by_a_test() {
    let is_test = |name: &str| name.contains("/tests/") || name.ends_with("tests.rs") || name.starts_with("tests/");
    let mut tests = String::new();
    for (name, text) in sources().iter().filter(|(name, _)| !name.ends_with("tidy.rs")) {
        tests += if is_test(name) { text } else { text.split_once("#[cfg(test)]").map_or("", |(_, tests)| tests) };
    }
    let is_named = |word: &str| {
        tests.match_indices(word).any(|(at, _)| {
            let rest = tests.get(at + word.len()..).unwrap_or_default();
            // A histogram is named by one of its series.
            let rest = ["_count", "_sum", "_bucket"].iter().find_map(|end| rest.strip_prefix(end)).unwrap_or(rest);
            !rest.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        })
    };
    let page = read("docs/metrics.md");
    let documented = page.split('`').filter(|word| word.starts_with("tidegate_") || word.starts_with("workqueue_"));
    let plain = |word: &&str| word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    let own_crate = |word: &&str| CRATES.iter().any(|name| **word == format!("tidegate_{name}"));
    let unnamed: BTreeSet<&str> = documented.filter(plain).filter(|word| !own_crate(word) && !is_named(word)).collect();
    assert_eq!(unnamed, BTreeSet::from(UNTESTED_METRICS));
}

/// The anchor of a heading: lower case, without punctuation, hyphens for spaces.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Every page, without its blocks of code.
fn pages(folder: &Path, found: &mut Vec<(PathBuf, Vec<String>)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            pages(&path, found);
        } else if name.ends_with(".md") {
            let text = fs::read_to_string(&path).expect("UTF-8");
            // The text between two fences is code.
            let prose = text.split("```").step_by(2).flat_map(str::lines).map(str::to_owned).collect();
            found.push((path, prose));
        }
    }
}

#[test]
fn links_in_the_docs_resolve() {
    let mut all = Vec::new();
    pages(&root(), &mut all);
    let anchors = |page: &Path| -> BTreeSet<String> {
        let lines = all.iter().filter(|(path, _)| path == page).flat_map(|(_, lines)| lines);
        lines.filter(|line| line.starts_with('#')).map(|line| anchor(line.trim_start_matches('#'))).collect()
    };
    let mut stale = Vec::new();
    for (page, lines) in &all {
        // A link may break over a line between its words, never within its target.
        let targets = lines.iter().flat_map(|line| line.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")) {
            let (file, place) = target.split_once('#').unwrap_or((target, ""));
            let beside = page.parent().expect("a folder").join(file);
            let leads = if file.is_empty() { Some(page.clone()) } else { beside.canonicalize().ok() };
            if !leads.is_some_and(|leads| place.is_empty() || anchors(&leads).contains(place)) {
                stale.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(stale.is_empty(), "links that lead nowhere:\n{}", stale.join("\n"));
}

/// A skip that does not go through it would pass in continuous integration.
#[test]
fn tests_are_skipped_by_one_function() {
    let printed = format!("println!(\"{}", "skipped");
    // The benches name what they leave out; that is no test.
    let may = ["tests/src/skip.rs", "bench/src/operations.rs"];
    check(|name, text| {
        (text.contains(&printed) && !may.contains(&name))
            .then(|| "prints that it is skipped: call `skipped`".to_owned())
    });
}
