//! Paths into objects, as printer columns write them: `.spec.ports[?(@.name=="web")].port`.
//!
//! This is Kubernetes' own JSONPath and not that of RFC 9535: no `$`, dots in names are escaped by a backslash, and a
//! missing field yields no result. Only the part that columns can use is supported; any other path yields no result.

use serde_json::Value;

/// Steps of a path.
const STEPS_MAX: usize = 64;
/// Values on the way; a column shows the first.
const VALUES_MAX: usize = 4_096;

/// A path that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// From the end if negative.
    Element(i64),
    All,
    /// Elements of which a field compares so with a value.
    Where(Vec<Step>, Comparison, Value),
    /// Elements that have a field.
    Having(Vec<Step>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
}

impl Path {
    /// Reads a path; `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
        steps(text.strip_prefix('$').unwrap_or(text)).map(Self)
    }

    /// The names of a path that has nothing else.
    pub(crate) fn names(&self) -> Option<Vec<&str>> {
        self.0.iter().map(Step::name).collect()
    }

    /// The first value at the path.
    pub(crate) fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        follow(&self.0, object).into_iter().next()
    }
}

impl Step {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Field(name) => Some(name),
            Self::Element(_) | Self::All | Self::Where(..) | Self::Having(_) => None,
        }
    }
}

fn steps(text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if steps.len() >= STEPS_MAX {
            return None;
        }
        let (step, after) = if let Some(inner) = rest.strip_prefix('[') {
            let end = closing(inner)?;
            (bracket(&inner[..end])?, &inner[end + 1..])
        } else {
            let named = rest.strip_prefix('.')?;
            let (name, after) = name(named);
            match (name.as_str(), after.starts_with('[')) {
                // `.[0]` is `[0]`.
                ("", true) => {
                    rest = after;
                    continue;
                }
                ("", false) => return None,
                ("*", _) => (Step::All, after),
                _ => (Step::Field(name), after),
            }
        };
        steps.push(step);
        rest = after;
    }
    Some(steps)
}

/// A name up to the next dot or bracket that no backslash protects, and the rest.
fn name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.extend(letters.next().map(|(_, letter)| letter)),
            '.' | '[' => return (name, &text[at..]),
            _ => name.push(letter),
        }
    }
    (name, "")
}

/// Where the bracket closes that was opened before this text.
fn closing(text: &str) -> Option<usize> {
    let (mut open, mut quote) = (0_usize, None);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(mark), _) if mark == letter => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '[') => open += 1,
            (None, ']') if open == 0 => return Some(at),
            (None, ']') => open -= 1,
            (None, _) => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(condition) = text.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        return filter(condition);
    }
    if let Some(name) = quoted(text) {
        return Some(Step::Field(name));
    }
    text.parse().ok().map(Step::Element)
}

fn quoted(text: &str) -> Option<String> {
    let mark = text.chars().next().filter(|mark| matches!(mark, '\'' | '"'))?;
    text.strip_prefix(mark)?.strip_suffix(mark).map(str::to_owned)
}

fn filter(text: &str) -> Option<Step> {
    let side = |text: &str| steps(text.trim().strip_prefix('@')?);
    for (sign, comparison) in [("==", Comparison::Equal), ("!=", Comparison::Unequal)] {
        if let Some((left, right)) = text.split_once(sign) {
            let right = right.trim();
            let value = quoted(right).map(Value::from).or_else(|| serde_json::from_str(right).ok())?;
            return Some(Step::Where(side(left)?, comparison, value));
        }
    }
    side(text).map(Step::Having)
}

fn follow<'a>(steps: &[Step], object: &'a Value) -> Vec<&'a Value> {
    let mut values = vec![object];
    for step in steps {
        values = values.into_iter().flat_map(|value| next(step, value)).take(VALUES_MAX).collect();
    }
    values
}

fn next<'a>(step: &Step, value: &'a Value) -> Vec<&'a Value> {
    let elements = || value.as_array().into_iter().flatten();
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Element(nth) => {
            let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let from_end = || usize::try_from(nth.unsigned_abs()).ok().and_then(|back| list.len().checked_sub(back));
            let nth = if *nth < 0 { from_end() } else { usize::try_from(*nth).ok() };
            nth.and_then(|nth| list.get(nth)).into_iter().collect()
        }
        Step::All => match value {
            Value::Object(fields) => fields.values().collect(),
            Value::Array(list) => list.iter().collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        },
        Step::Where(path, comparison, wanted) => elements()
            .filter(|element| {
                let found = follow(path, element);
                found.first().is_some_and(|found| (*found == wanted) == (*comparison == Comparison::Equal))
            })
            .collect(),
        Step::Having(path) => elements().filter(|element| !follow(path, element).is_empty()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Option<Value>) {
        let object = json!({
            "a": {"b.c": 1, "list": [{"name": "x", "n": 1}, {"name": "y", "n": 2, "more": true}], "names": ["p", "q"]},
        });
        let found = Path::parse(path).and_then(|path| path.first(&object).cloned());
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn paths_lead_to_values() {
        check(".a.names", Some(json!(["p", "q"])));
        check("{.a.names[0]}", Some(json!("p")));
        check(".a.names[-1]", Some(json!("q")));
        check(".a.list[*].n", Some(json!(1)));
        check(".a.list[?(@.name==\"y\")].n", Some(json!(2)));
        check(".a.list[?(@.n!=1)].name", Some(json!("y")));
        check(".a.list[?(@.more)].name", Some(json!("y")));
        check(".a.b\\.c", Some(json!(1)));
        check(".a['b.c']", Some(json!(1)));
        check(".a.*", Some(json!(1)));
        for none in
            [".a.x", ".a.names[9]", ".a.names[-9]", "a", "..a", ".a[", ".a[?(x)]", ".a[x]", ".a.names[?(@.x==)]"]
        {
            check(none, None);
        }
    }
}
