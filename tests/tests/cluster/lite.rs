//! Lite against the real API server: one table of raw requests, and a list of known differences.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::Method;
use serde_json::Value;
use tidegate_tests::Dev;
use tidegate_tests::cluster::Api;

use crate::stage::Stage;

/// Requests of every sort, and objects of built-in kinds that are refused.
const REQUESTS: &[&str] = &[include_str!("../manifests/requests.txt"), include_str!("../manifests/validation.txt")];

/// Known differences of lite from the real server: the row, lite's answer (empty if it depends on timing), and the
/// reason.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    (
        "one with a version is created",
        r#"400 Bad Request "Status" "BadRequest" no version"#,
        "the request is wrong, not the server, which answers 500",
    ),
    (
        "a group that is not there",
        r#"404 Not Found "Status" "NotFound" no version"#,
        "every refusal is a Status; the real server's router answers in plain text",
    ),
    (
        "a list as a table",
        r#"200 OK "Table" null a moment; /columnDefinitions/0/name "Name"; /rows/0/cells/0 "a"; /rows/0/cells/1 "2"; /rows/0/object/kind "PartialObjectMetadata""#,
        "all cells are texts",
    ),
    (
        "a watch from a version that is none",
        r#"400 Bad Request "Status" "BadRequest" no version"#,
        "the request is wrong, not the server, which answers 500",
    ),
    (
        "a watch from a version to come",
        r#"200 OK; "ERROR" null 504 null no version"#,
        "the real server keeps it open in silence, which a client cannot tell from quiet",
    ),
    (
        "a watch of one name",
        r#"200 OK; "ADDED" "b" null null second"#,
        "who asks for a watch gets one; the real server answers with the object",
    ),
    ("its scale", r#"200 OK "Scale" null a version; /spec/replicas 0; /status/selector "app=web""#, "a zero is said"),
    (
        "a health check out of the range",
        r#"422 Unprocessable Entity "Status" "Invalid" no version"#,
        "the request is wrong, not the server, which answers 500",
    ),
    ("apply of a scale", r#"200 OK "Scale" null a version; /spec/replicas 0"#, "a zero is said"),
];

/// A request of the table.
#[derive(Clone, Default)]
struct Step {
    name: String,
    method: Method,
    path: String,
    /// Its content type and text.
    body: Option<(String, String)>,
    accept: Option<String>,
    keep: Option<String>,
    show: Vec<String>,
}

impl Step {
    /// The same for a slow server, for steps that can be repeated.
    fn longer(&self) -> Option<Self> {
        let path = self.path.replace("timeoutSeconds=1", "timeoutSeconds=5");
        (self.method == Method::GET).then(|| Self { path, ..self.clone() })
    }
}

fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in REQUESTS.iter().flat_map(|text| text.lines()).filter(|line| !line.is_empty() && !line.starts_with("# "))
    {
        let (word, rest) = line.split_once(' ').expect("two words a line");
        if word == "##" {
            steps.push(Step { name: rest.to_owned(), ..Step::default() });
        }
        let Some(step) = steps.last_mut() else { continue };
        let mut body = |content_type: &str| step.body = Some((content_type.to_owned(), rest.to_owned()));
        match word {
            "##" => {}
            "as" => step.accept = Some(rest.to_owned()),
            "keep" => step.keep = Some(rest.to_owned()),
            "show" => step.show = rest.split(' ').map(str::to_owned).collect(),
            "object" => body("application/json"),
            "merge" => body("application/merge-patch+json"),
            "json" => body("application/json-patch+json"),
            "strategic" => body("application/strategic-merge-patch+json"),
            "apply" => body("application/apply-patch+yaml"),
            "text/plain" => body("text/plain"),
            method => {
                step.method = method.parse().expect("a method");
                step.path = rest.to_owned();
            }
        }
    }
    steps
}

/// A server, with the versions in its answers.
struct Asked {
    api: Api,
    kept: BTreeMap<String, String>,
}

impl Asked {
    fn new(api: Api) -> Self {
        Self { api, kept: BTreeMap::new() }
    }

    /// The compared parts of the answer to a request.
    async fn ask(&mut self, step: &Step) -> String {
        let filled = |text: &str| {
            self.kept.iter().fold(text.to_owned(), |text, (name, version)| text.replace(&format!("${name}"), version))
        };
        let body = step.body.as_ref().map(|(content_type, text)| (&**content_type, filled(text)));
        let answer = self.api.raw(step.method.clone(), &filled(&step.path), step.accept.as_deref(), body).await;
        let answer = answer.unwrap_or_else(|error| panic!("{}: {error}", step.name));
        let (status, text) = (answer.status, answer.body);
        let warnings: Vec<&str> =
            answer.headers.get_all("warning").iter().filter_map(|text| text.to_str().ok()).collect();
        let mut shown = format!("{status}");
        if step.path.contains("watch=true") && status == 200 {
            for event in text.lines() {
                let _ = write!(shown, "; {}", self.event(event));
            }
            return shown;
        }
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        let version = value["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        // A list's version is that of the moment, in which any client may have written.
        let lists = value["items"].is_array() || value["kind"] == "Table";
        let known = if lists && !version.is_empty() { "a moment".to_owned() } else { self.version(&version) };
        let _ = write!(shown, " {} {} {known}", value["kind"], value["reason"]);
        for place in &step.show {
            let _ = match &**place {
                "items" => write!(shown, "; items {:?}", names(&value)),
                "warnings" => write!(shown, "; warnings {warnings:?}"),
                "owners" => write!(shown, "; owners {}", owners(&value)),
                pointer => write!(shown, "; {pointer} {}", value.pointer(pointer).unwrap_or(&Value::Null)),
            };
        }
        if let Some(name) = &step.keep {
            self.kept.insert(name.clone(), version);
        }
        shown
    }

    fn event(&self, line: &str) -> String {
        let event: Value = serde_json::from_str(line).unwrap_or(Value::Null);
        let (object, metadata) = (&event["object"], &event["object"]["metadata"]);
        // A bookmark may have any version that is late enough.
        let version = if event["type"] == "BOOKMARK" { None } else { metadata["resourceVersion"].as_str() };
        let version = self.version(version.unwrap_or_default());
        format!("{} {} {} {} {}", event["type"], metadata["name"], object["code"], metadata["annotations"], version)
    }

    /// The index of a version among the known ones: numbers differ from server to server.
    fn version(&self, version: &str) -> String {
        let kept = self.kept.iter().find(|(_, kept)| *kept == version);
        kept.map_or(if version.is_empty() { "no version" } else { "a version" }.to_owned(), |(name, _)| name.clone())
    }
}

/// The owners of an object's fields by name, without times. A server orders them by time, to the second, and the two
/// may see the same requests in different seconds.
fn owners(object: &Value) -> Value {
    let mut entries = object["metadata"]["managedFields"].clone();
    for entry in entries.as_array_mut().into_iter().flatten() {
        if entry["time"].is_string() {
            entry["time"] = "a time".into();
        }
    }
    if let Some(entries) = entries.as_array_mut() {
        entries.sort_by_key(|entry| ["manager", "operation", "subresource"].map(|field| entry[field].to_string()));
    }
    entries
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().into_iter().flatten().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

pub(crate) async fn answers_equal_those_of_a_real_api_server(stage: &mut Stage) {
    // Its edge would write the status of an Ingress between two requests.
    let dev = Dev::with(&[], &["--status=off"]).await;
    let mut real = Asked::new(stage.cluster.api.clone());
    let mut lite = Asked::new(Api::of(&dev.kubeconfig));
    let (mut other, mut count) = (Vec::new(), 0);
    let named = |name: &str, lite: &str| {
        DIFFERENCES.iter().any(|(known, said, _)| *known == name && (said.is_empty() || *said == lite))
    };
    for step in steps() {
        let mut answers = futures::join!(real.ask(&step), lite.ask(&step));
        count += 1;
        // The real server may be slow to send the events of a watch, and its reads may lag behind.
        if answers.0 != answers.1
            && !named(&step.name, &answers.1)
            && let Some(step) = step.longer()
        {
            answers = futures::join!(real.ask(&step), lite.ask(&step));
        }
        if answers.0 != answers.1 {
            other.push((step.name, answers.0, answers.1));
        }
    }
    let unnamed: Vec<_> = other.iter().filter(|(name, _, lite)| !named(name, lite)).collect();
    for (name, real, lite) in &unnamed {
        println!("    {name}\n        real: {real}\n        lite: {lite}");
    }
    println!("    {count} requests, {} answered differently", other.len());
    assert!(unnamed.is_empty(), "answers differ that are not on the list");
    let stale: Vec<_> = DIFFERENCES.iter().filter(|(known, ..)| other.iter().all(|(name, ..)| name != known)).collect();
    assert!(stale.is_empty(), "on the list, but answered alike: {stale:?}");
}
