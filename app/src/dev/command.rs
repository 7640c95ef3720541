//! The command that a pod template runs instead of an echo process: its words, its environment and its termination.
//! Pure.

use std::time::Duration;

use serde_json::Value;

/// The annotation of a pod template that names the command.
pub(super) const COMMAND: &str = "tidegate.io/command";
/// The default of `terminationGracePeriodSeconds`, as in Kubernetes.
const GRACE_SECONDS: u64 = 30;
/// The maximum grace period of a process.
const GRACE_SECONDS_MAX: u64 = 600;

/// A command from a pod template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Command {
    /// The program and its arguments; never empty.
    pub(super) words: Vec<String>,
    /// The variables of the first container whose values are in the template.
    pub(super) env: Vec<(String, String)>,
    pub(super) grace: Duration,
}

impl Command {
    /// Returns `None` if the template has no such annotation. The error says why its value is not a command.
    pub(super) fn of(template: &Value) -> Option<Result<Self, String>> {
        let text = template["metadata"]["annotations"][COMMAND].as_str()?;
        Some(words(text).map(|words| {
            let spec = &template["spec"];
            let env = spec["containers"][0]["env"].as_array().into_iter().flatten();
            // A variable without a value is empty; the value of one with a source is unknown here.
            let env = env.filter(|one| one["valueFrom"].is_null()).filter_map(|one| {
                let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
                let sound = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
                Some((Some(text("name")).filter(sound)?, Some(text("value")).filter(|value| !value.contains('\0'))?))
            });
            let seconds = spec["terminationGracePeriodSeconds"].as_u64().unwrap_or(GRACE_SECONDS);
            Self { words, env: env.collect(), grace: Duration::from_secs(seconds.min(GRACE_SECONDS_MAX)) }
        }))
    }
}

/// Parses a JSON list, or splits words as a shell does.
fn words(text: &str) -> Result<Vec<String>, String> {
    let refused = |why: &str| format!("{COMMAND}: {text:?} is not a command: {why}");
    let words = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).map_err(|why| refused(&why.to_string()))?
    } else {
        shlex::split(text).ok_or_else(|| refused("a quote is not closed"))?
    };
    match words.first() {
        Some(program) if program.is_empty() => Err(refused("the program has no name")),
        None => Err(refused("it is empty")),
        Some(_) if words.iter().any(|word| word.contains('\0')) => Err(refused("a word contains the character NUL")),
        Some(_) => Ok(words),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&[&str], &str>) {
        let got = words(text);
        match expected {
            Ok(expected) => assert_eq!(got.unwrap(), expected, "{text}"),
            Err(why) => assert!(got.unwrap_err().ends_with(why), "{text}"),
        }
    }

    #[test]
    fn a_command_is_a_list_or_words() {
        check("python3 -m http.server", Ok(&["python3", "-m", "http.server"]));
        check("sh -c 'exec serve \"$PORT\"'", Ok(&["sh", "-c", "exec serve \"$PORT\""]));
        check(r#"["sh", "-c", "a b"]"#, Ok(&["sh", "-c", "a b"]));
        check("", Err("is not a command: it is empty"));
        check("[]", Err("is not a command: it is empty"));
        check("''", Err("the program has no name"));
        check("sh 'x", Err("a quote is not closed"));
        check("[1]", Err("invalid type: integer `1`, expected a string at line 1 column 2"));
    }

    #[test]
    fn the_template_sets_the_environment_and_the_grace_period() {
        let template = json!({
            "metadata": {"annotations": {COMMAND: "serve"}},
            "spec": {
                "terminationGracePeriodSeconds": 3,
                "containers": [{"name": "a", "env": [
                    {"name": "A", "value": "1"}, {"name": "B"}, {"name": "C", "valueFrom": {}}, {"name": "D=", "value": ""},
                ]}],
            },
        });
        let command = Command::of(&template).unwrap().unwrap();
        assert_eq!(command.env, [("A".to_owned(), "1".to_owned()), ("B".to_owned(), String::new())]);
        assert_eq!(command.grace, Duration::from_secs(3));
        assert!(Command::of(&json!({"spec": {}})).is_none());
    }
}
