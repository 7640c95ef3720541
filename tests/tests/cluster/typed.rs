//! Lite against the real API server: one table of kubectl commands, and a list of known differences.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use regex::Regex;
use tempfile::TempDir;
use tidegate_tests::{Dev, Kubectl};

use crate::stage::Stage;

const COMMANDS: &str = include_str!("../manifests/kubectl.txt");

const NARROW: &str = "it serves the kinds that Tidegate reads, those of dev's processes, and what definitions add";
const ENUMS: &str = "the real server adds a sentence on each value to the description, which k8s-openapi leaves out";
const RACE: &str = "the real server publishes a definition a moment after it is established, lite before it answers";

/// Known differences of lite's output from the real server's: a part of it (empty if it depends on timing), and the
/// reason.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("get namespace as somebody else", "Active", "there are no users, so that nobody else can be meant"),
    ("describe namespace", "Active", "the real server tells of quotas, which lite has no kind for"),
    ("describe service", "Endpoints", "a real Service has a slice before it has endpoints"),
    ("describe ingress", "plain:80 (<none>)", "a real Service has a slice before it has endpoints"),
    ("patch, json, whose test fails", "operation '/0' failed", "it says which part of the patch failed"),
    ("patch, json, of a path that is not there", "operation '/0' failed", "it says which part of the patch failed"),
    ("autoscale", "NotFound", "kubectl writes autoscaling/v1, and lite has autoscaling/v2 alone"),
    ("auth can-i --list", "*.*", "one rule allows everything, and the real server lists what it implies too"),
    ("api-versions of the built-in groups", "networking.k8s.io/v1", NARROW),
    ("api-resources of networking", "ingressclasses", NARROW),
    ("api-resources of apps, with verbs", "deployments", NARROW),
    ("api-resources of the core group", "configmaps", NARROW),
    ("api-resources of all that is in namespaces, as names", "ingresses", NARROW),
    ("explain, a field", "ENUM:\n    Exact\n    ImplementationSpecific\n    Prefix", ENUMS),
    ("explain, a type of Service", "enum: ClusterIP, ExternalName, LoadBalancer, NodePort", ENUMS),
    ("get of everything", "deployment.apps/web", NARROW),
    ("explain it", "", RACE),
    ("get it when its definition is gone", "", RACE),
];

/// A command of the table.
#[derive(Default)]
struct Step {
    name: String,
    words: Vec<String>,
    input: String,
    files: Vec<(String, String)>,
    editor: Option<String>,
    /// `true` if only the last line of the output is compared.
    last: bool,
}

fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut in_file = false;
    for line in COMMANDS.lines().filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix("## ") {
            steps.push(Step { name: name.to_owned(), ..Step::default() });
            in_file = false;
            continue;
        }
        let Some(step) = steps.last_mut() else { continue };
        if let Some(text) = line.strip_prefix("| ") {
            let to = if in_file { step.files.last_mut().map(|(_, text)| text) } else { Some(&mut step.input) };
            to.expect("a file").extend([text, "\n"]);
        } else if let Some(path) = line.strip_prefix("file ") {
            step.files.push((path.to_owned(), String::new()));
            in_file = true;
        } else if let Some(editor) = line.strip_prefix("editor ") {
            step.editor = Some(editor.to_owned());
        } else if line == "last" {
            step.last = true;
        } else {
            step.words = words(line);
        }
    }
    steps
}

/// The words of a command; single quotes keep spaces.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            _ => word.push(letter),
        }
    }
    words.push(word);
    words
}

/// kubectl with a server, in a folder of its own.
struct Typed {
    kubectl: Kubectl,
    folder: TempDir,
    forms: Vec<(Regex, &'static str)>,
}

impl Typed {
    fn new(kubectl: Kubectl) -> Self {
        Self { kubectl, folder: tempfile::tempdir().expect("a folder"), forms: forms() }
    }

    /// The compared result of a command: its exit code and output.
    async fn answer(&self, step: &Step) -> String {
        for (path, text) in &step.files {
            let path = self.folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let mut words = vec!["--namespace=typed"];
        words.extend(step.words.iter().map(String::as_str));
        let mut command = self.kubectl.command();
        command.current_dir(self.folder.path()).args(words);
        if let Some(editor) = &step.editor {
            command.env("KUBE_EDITOR", editor);
        }
        let (code, out, err) = Kubectl::ended(command, &step.input).await;
        let out = if step.last { out.lines().last().unwrap_or_default() } else { &out };
        format!("exit {}\n{}\n--\n{}", code.unwrap_or(-1), self.plain(out), self.plain(&err))
    }

    /// A text without the parts that differ from server to server and over time.
    fn plain(&self, text: &str) -> String {
        let text = text.replace(&self.folder.path().display().to_string(), "FOLDER");
        let plain = self.forms.iter().fold(text, |text, (form, put)| form.replace_all(&text, *put).into_owned());
        plain.trim_end().to_owned()
    }
}

/// Ids, times, versions, addresses and widths of columns.
fn forms() -> Vec<(Regex, &'static str)> {
    [
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| \+0000( UTC)?)", "TIME"),
        (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d \+0000", "TIME"),
        (r#"(resourceVersion"?: )"\d+""#, "${1}VERSION"),
        (r"(Resource Version: +)\d+", "${1}VERSION"),
        (r"W\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", "W "),
        (r"\b10\.(9[6-9]|10\d|11[01])\.\d+\.\d+", "ADDRESS"),
        (r"https://[\w.]+:\d+", "SERVER"),
        (r"/\S*/(LIVE|MERGED)-\d+", "$1"),
        (r"/\S*/kubectl-edit-\d+.yaml", "EDITED"),
        (r"(?m)(\s)(\d+[ydhms])+(\s|$)", "${1}AGE$3"),
        (r"\b3[012]\d{3}\b", "PORT"),
        (r"\bmade-[a-z0-9]{5}\b", "made-SUFFIX"),
        (r"\b(rolled|web)-[a-z0-9]{8,10}(-[a-z0-9]{5})?\b", "$1-SUFFIX"),
        (r"pod-template-hash=[a-z0-9]+", "pod-template-hash=HASH"),
        (r"(\S)  +", "$1  "),
    ]
    .map(|(form, put)| (Regex::new(form).expect("a form"), put))
    .into()
}

pub(crate) async fn printed_objects_equal_those_of_a_real_api_server(stage: &mut Stage) {
    // Its edge would write the status of an Ingress between two commands.
    let dev = Dev::with(&[], &["--status=off"]).await;
    let kubectl = |config: &Path| Typed::new(Kubectl::for_config(config).expect("kubectl, which was there before"));
    let real = kubectl(&stage.cluster.kubeconfig("admin", "admin"));
    let lite = kubectl(&dev.kubeconfig);
    let known: BTreeMap<&str, &str> = DIFFERENCES.iter().map(|(name, part, _)| (*name, *part)).collect();
    let (mut other, mut count) = (Vec::new(), 0);
    for step in steps() {
        let (real, lite) = futures::join!(real.answer(&step), lite.answer(&step));
        count += 1;
        if real != lite {
            let named = known.get(&*step.name).is_some_and(|part| lite.contains(part));
            if !named {
                println!("    {} {:?}\n--- real: {real}\n--- lite: {lite}", step.name, step.words);
            }
            other.push((step.name, named));
        }
    }
    println!("    {count} commands, {} answered differently", other.len());
    assert!(other.iter().all(|(_, named)| *named), "answers differ that are not on the list");
    let stale =
        |(name, part, _): &&(&str, &str, &str)| !part.is_empty() && other.iter().all(|(other, _)| other != name);
    let stale: Vec<_> = DIFFERENCES.iter().filter(stale).collect();
    assert!(stale.is_empty(), "on the list, but answered alike: {stale:?}");
}
