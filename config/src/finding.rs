//! Messages to users about objects. Findings are data: status conditions, Events, metrics and debug pages are
//! renderings of them.

mod field_name;
mod problem;

use std::fmt::{self, Write as _};

pub use field_name::field_name;
pub use problem::Problem;

use serde::Serialize;

use crate::object::ObjectRef;

/// The severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A setting of the user is not in effect.
    Error,
    /// A setting is in effect, but not quite as written.
    Warning,
}

impl Severity {
    /// Its name, as in the label of a metric.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One message to users about one object.
///
/// Findings are ordered by object, then field, so that dumps of equal worlds are equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Finding {
    /// The object whose owner can fix it.
    pub object: ObjectRef,
    /// The field as the user wrote it, such as `spec.rules[0].http.paths[1].path`.
    pub field: String,
    /// The problem.
    #[serde(flatten)]
    pub problem: Problem,
}

impl Finding {
    /// A finding about a field of an object.
    pub fn new(object: ObjectRef, field: impl Into<String>, problem: Problem) -> Self {
        Self { object, field: field.into(), problem }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Plain(f), "{}: {}: {}", self.object, self.field, self.problem)
    }
}

impl Finding {
    /// Field and problem in one line, for places that name the object already.
    #[must_use]
    pub fn note(&self) -> String {
        let mut note = Plain(String::new());
        let Self { field, problem, object: _ } = self;
        // Writing to a String cannot fail.
        let _ = if field.is_empty() { write!(note, "{problem}") } else { write!(note, "{field}: {problem}") };
        note.0
    }
}

/// The maximum number of characters shown of one value. No namespace with a name, and no key of an annotation, that an
/// API server accepts is longer.
const SHOWN_MAX: usize = 320;

/// Escapes characters that a terminal would interpret ([`is_terminal_control`]): names written by tenants may contain
/// them. Each value is cut to [`SHOWN_MAX`] by itself.
struct Plain<W>(W);

impl<W: fmt::Write> fmt::Write for Plain<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Some((end, _)) = text.char_indices().nth(SHOWN_MAX) {
            self.write_str(&text[..end])?;
            return self.0.write_char('…');
        }
        for piece in text.split_inclusive(is_terminal_control) {
            let last = piece.chars().next_back().filter(|mark| is_terminal_control(*mark));
            self.0.write_str(&piece[..piece.len() - last.map_or(0, char::len_utf8)])?;
            if let Some(mark) = last {
                write!(self.0, "{}", mark.escape_default())?;
            }
        }
        Ok(())
    }
}

/// Returns `true` if a terminal would interpret the character instead of showing it: control characters, and those that
/// change the direction of text (Unicode Standard Annex 9).
#[must_use]
pub fn is_terminal_control(mark: char) -> bool {
    let turns = matches!(mark, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    mark.is_control() || turns
}

/// Cuts a value to a printable length: 80 characters.
#[must_use]
pub fn printable(value: &str) -> String {
    const LENGTH_MAX: usize = 80;
    if value.chars().count() <= LENGTH_MAX {
        value.to_owned()
    } else {
        let mut cut: String = value.chars().take(LENGTH_MAX).collect();
        cut.push('…');
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Kind, ObjectName};

    #[track_caller]
    fn check(field: &str, why: &str, want: &str) {
        let object = ObjectRef::new(Kind::Ingress, ObjectName::new("shop", "web"));
        let finding = Finding::new(object, field, Problem::Unreadable { why: why.to_owned() });
        assert_eq!(finding.note(), want);
        let between = if field.is_empty() { ": " } else { "" };
        assert_eq!(finding.to_string(), format!("Ingress shop/web: {between}{want}"));
    }

    #[test]
    fn a_note_omits_the_object() {
        check("spec", "no object", "spec: cannot be read (no object), so it has no routes");
        check("", "no object", "cannot be read (no object), so it has no routes");
        check(
            "spec.\u{1b}[2J",
            "a\n\u{202e}b",
            "spec.\\u{1b}[2J: cannot be read (a\\n\\u{202e}b), so it has no routes",
        );
        let cut = |mark: &str, length| format!("{}…", mark.repeat(length));
        let (field, why) = ("é".repeat(SHOWN_MAX + 1), "x".repeat(1 << 20));
        let want = format!("{}: cannot be read ({}), so it has no routes", cut("é", SHOWN_MAX), cut("x", SHOWN_MAX));
        check(&field, &why, &want);
    }
}
