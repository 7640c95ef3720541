//! Label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.

use serde_json::Value;

/// All of these must hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl LabelSelector {
    /// Reads the text form; the error says why it is invalid.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        split(text)?.into_iter().map(requirement).collect::<Result<_, _>>().map(Self)
    }

    /// Reads a `LabelSelector` object; an unknown operator or a missing key is an error.
    pub(crate) fn from_object(selector: &Value) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            requirements.push(Requirement { key: key.clone(), test: Test::In(values) });
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let key = expression["key"].as_str().ok_or("a match expression needs a key")?.to_owned();
            let values = || expression["values"].as_array().into_iter().flatten();
            let values = || values().filter_map(Value::as_str).map(str::to_owned).collect();
            let test = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Test::In(values()),
                "NotIn" => Test::NotIn(values()),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::Absent,
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            };
            requirements.push(Requirement { key, test });
        }
        Ok(Self(requirements))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, labels: &Value) -> bool {
        self.match_by(|key| labels.get(key).and_then(Value::as_str))
    }

    /// The same, where `label` gives the value of a label.
    pub(super) fn match_by<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|one| {
            let value = label(&one.key);
            match &one.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
                Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            }
        })
    }
}

/// The text form, as the scale subresource shows it.
impl std::fmt::Display for LabelSelector {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (nth, Requirement { key, test }) in self.0.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            match test {
                Test::Exists => write!(out, "{comma}{key}")?,
                Test::Absent => write!(out, "{comma}!{key}")?,
                Test::In(values) if values.len() == 1 => write!(out, "{comma}{key}={}", values.concat())?,
                Test::In(values) => write!(out, "{comma}{key} in ({})", values.join(","))?,
                Test::NotIn(values) => write!(out, "{comma}{key} notin ({})", values.join(","))?,
            }
        }
        Ok(())
    }
}

/// Splits at commas outside parentheses; empty terms are an error, an empty text is no term.
fn split(text: &str) -> Result<Vec<&str>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let (mut terms, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' if !inside => inside = true,
            ')' if inside => inside = false,
            '(' | ')' => return Err(format!("found '{letter}', expected: identifier")),
            ',' if !inside => {
                terms.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(text[start..].trim());
    if inside {
        return Err("found '', expected: ',' or ')'".into());
    }
    if terms.iter().any(|term| term.is_empty()) {
        return Err("found ',', expected: identifier".into());
    }
    Ok(terms)
}

fn requirement(term: &str) -> Result<Requirement, String> {
    if let Some(key) = term.strip_prefix('!') {
        return Ok(Requirement { key: checked_key(key.trim())?, test: Test::Absent });
    }
    if let Some(list) = term.strip_suffix(')') {
        let (head, values) = list.split_once('(').ok_or_else(|| format!("can't understand '{term}'"))?;
        let mut words = head.split_whitespace();
        let (key, operator) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let values = values.split(',').map(|value| checked_value(value.trim())).collect::<Result<_, _>>()?;
        let test = match (operator, words.next()) {
            ("in", None) => Test::In(values),
            ("notin", None) => Test::NotIn(values),
            _ => return Err(format!("found '{operator}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        return Ok(Requirement { key: checked_key(key)?, test });
    }
    if let Some((key, value)) = term.split_once("!=") {
        let test = Test::NotIn(vec![checked_value(value.trim())?]);
        return Ok(Requirement { key: checked_key(key.trim())?, test });
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        let test = Test::In(vec![checked_value(value.trim())?]);
        return Ok(Requirement { key: checked_key(key.trim())?, test });
    }
    let mut words = term.split_whitespace().skip(1);
    match (words.next(), words.next().unwrap_or_default()) {
        (None, _) => Ok(Requirement { key: checked_key(term)?, test: Test::Exists }),
        (Some("in" | "notin"), list) => Err(format!("found '{list}' expected: '('")),
        (Some(operator), _) => Err(format!("found '{operator}', expected: in, notin, =, ==, !=, gt, lt")),
    }
}

fn checked_key(key: &str) -> Result<String, String> {
    if valid_name(key) {
        Ok(key.to_owned())
    } else {
        Err(format!("<nil>: Invalid value: {key:?}: not a qualified name"))
    }
}

fn checked_value(value: &str) -> Result<String, String> {
    if valid_value(value) {
        Ok(value.to_owned())
    } else {
        Err(format!("<nil>: Invalid value: {value:?}: not a label value"))
    }
}

/// Returns `true` if this is a qualified name: an optional DNS prefix and `/`, then up to 63 letters, digits, `-`, `_`,
/// `.`.
pub(crate) fn valid_name(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_fits = prefix.is_none_or(|prefix| {
        (1..=253).contains(&prefix.len())
            && prefix.bytes().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || matches!(one, b'-' | b'.'))
    });
    prefix_fits && !name.is_empty() && valid_value(name)
}

/// Returns `true` if this is a label's value: at most 63 letters, digits, `-`, `_`, `.`, alphanumeric at both ends, or
/// empty.
pub(crate) fn valid_value(value: &str) -> bool {
    let ends = |one: Option<u8>| one.is_none_or(|one| one.is_ascii_alphanumeric());
    value.len() <= 63
        && value.bytes().all(|one| one.is_ascii_alphanumeric() || matches!(one, b'-' | b'_' | b'.'))
        && ends(value.bytes().next())
        && ends(value.bytes().last())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: bool) {
        let labels = json!({"app": "web", "tier": "front", "empty": "", "example.com/a": "1"});
        assert_eq!(LabelSelector::parse(text).unwrap().matches(&labels), expected, "{text}");
    }

    #[test]
    fn labels_select() {
        check("", true);
        check("app=web", true);
        check("app == web , tier != back", true);
        check("app!=web", false);
        check("absent!=web", true);
        check("app in (db, web),tier", true);
        check("app notin (db,web)", false);
        check("absent notin (db)", true);
        check("!absent", true);
        check("!app", false);
        check("absent", false);
        check("empty=", true);
        check("example.com/a in (1,2)", true);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["a=b,", "a in b", "a in (b", "a)(", "-a=b", "a=b c", "a like (b)", "in (b)", "!", "a=b=c"] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn selector_objects_select() {
        let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]});
        let labels = LabelSelector::from_object(&selector).unwrap();
        assert!(labels.matches(&json!({"app": "web", "tier": "a"})));
        assert!(!labels.matches(&json!({"app": "web", "tier": "c"})));
        assert_eq!(labels.to_string(), "app=web,tier in (a,b)");
        assert!(LabelSelector::from_object(&json!({"matchExpressions": [{"key": "a", "operator": "x"}]})).is_err());
    }
}
