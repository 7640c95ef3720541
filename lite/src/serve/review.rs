//! Reviews of a client's own identity and permissions (`kubectl auth can-i`, `whoami`). Every client that the
//! server admits may do everything, so the answers are fixed; a malformed review is refused in the real server's words.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::answer;
use super::body::LiteBody;
use crate::causes::Causes;
use crate::failure::Failure;
use crate::kind::Kind;

/// The user name of every client.
const USER: &str = "admin";
/// The groups of every client. In the real server the first one is allowed everything.
const GROUPS: [&str; 2] = ["system:masters", "system:authenticated"];

/// Answers a review. It is not stored.
pub(super) fn answered(kind: &Kind, question: &Value) -> Result<Response<LiteBody>, Failure> {
    let mut answer = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {}});
    if let Some(spec) = question.get("spec") {
        answer["spec"] = spec.clone();
    }
    answer["status"] = match kind.built_in() {
        Some("SelfSubjectReview") => json!({"userInfo": {"username": USER, "groups": GROUPS}}),
        Some("SelfSubjectRulesReview") => rules(question)?,
        Some("SelfSubjectAccessReview") => access(kind, question)?,
        _ => return Err(Failure::method_not_allowed()),
    };
    Ok(answer::json(StatusCode::CREATED, &answer))
}

fn access(kind: &Kind, question: &Value) -> Result<Value, Failure> {
    let has = |part: &str| question["spec"][part].is_object();
    if has("resourceAttributes") == has("nonResourceAttributes") {
        let mut causes = Causes::default();
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        causes.invalid("spec.resourceAttributes", &question["spec"]["resourceAttributes"], why);
        return Err(Failure::invalid(kind, "", &causes.0));
    }
    Ok(json!({"allowed": true}))
}

fn rules(question: &Value) -> Result<Value, Failure> {
    if question["spec"]["namespace"].as_str().unwrap_or_default().is_empty() {
        return Err(Failure::bad_request("no namespace on request"));
    }
    Ok(json!({
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": false,
    }))
}
