//! Writes mutants into the source, each behind a switch, so that one build has all of them: a test chooses one by the
//! environment variable `MUTANT`. `.ci/mutants` calls it with the folder of a clone; it reads the mutants of
//! `cargo mutants --list --json`, each with an `id`, from standard input, and prints the ids of those that it left out,
//! because they overlap with others or are not where they should be.

use std::collections::BTreeMap;
use std::error::Error;
use std::ops::Range;
use std::path::Path;
use std::{env, fs, io};

use proc_macro2::{LineColumn, Span};
use serde::Deserialize;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, ExprBinary, ExprUnary};

/// The function that tells whether a mutant is chosen; it is added to each crate.
const SWITCH: &str = r#"
#[doc(hidden)]
pub mod mutant_switch {
    use std::sync::OnceLock;

    pub fn is(id: u32) -> bool {
        static CHOSEN: OnceLock<u32> = OnceLock::new();
        let chosen = || std::env::var("MUTANT").ok().and_then(|id| id.parse().ok()).unwrap_or(0);
        *CHOSEN.get_or_init(chosen) == id
    }
}
"#;

/// A mutant as cargo-mutants lists it.
#[derive(Deserialize)]
struct Mutant {
    id: u32,
    file: String,
    genre: Genre,
    replacement: String,
    span: Place,
}

/// The kinds of mutants.
#[derive(Clone, Copy, Deserialize)]
enum Genre {
    /// A function's body is replaced by a value.
    FnValue,
    BinaryOperator,
    UnaryOperator,
    /// An arm is deleted.
    MatchArm,
    /// The guard of an arm is replaced.
    MatchArmGuard,
}

/// A part of a file; lines and columns are counted from 1.
#[derive(Clone, Copy, Deserialize)]
struct Place {
    start: Position,
    end: Position,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
struct Position {
    line: usize,
    column: usize,
}

impl From<LineColumn> for Position {
    fn from(at: LineColumn) -> Self {
        Self { line: at.line, column: at.column + 1 }
    }
}

/// A file and where its lines begin.
struct Text {
    text: String,
    lines: Vec<usize>,
}

impl Text {
    fn new(text: String) -> Self {
        let lines = [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, lines }
    }

    fn offset(&self, at: Position) -> usize {
        let start = self.lines[at.line - 1];
        let line = &self.text[start..];
        start + line.char_indices().nth(at.column - 1).map_or(line.len(), |(offset, _)| offset)
    }

    fn range(&self, span: Span) -> Range<usize> {
        self.offset(span.start().into())..self.offset(span.end().into())
    }
}

/// The replacement of a part of a file; an empty range inserts.
struct Edit {
    range: Range<usize>,
    with: String,
    id: u32,
}

/// The operators, arms and edits of a file.
struct Finder<'a> {
    text: &'a Text,
    mutants: &'a [Mutant],
    edits: Vec<Edit>,
}

impl Finder<'_> {
    /// Adds an edit for each mutant of a genre at a place.
    fn each(&mut self, at: Position, is: fn(Genre) -> bool, edit: impl Fn(&Mutant, &str) -> (Range<usize>, String)) {
        for mutant in self.mutants.iter().filter(|mutant| is(mutant.genre) && mutant.span.start == at) {
            let (range, with) = edit(mutant, &format!("crate::mutant_switch::is({})", mutant.id));
            self.edits.push(Edit { range, with, id: mutant.id });
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_expr_binary(&mut self, it: &'ast ExprBinary) {
        let text = self.text;
        let [left, op, right] =
            [it.left.span(), it.op.span(), it.right.span()].map(|span| &text.text[text.range(span)]);
        let whole = text.range(it.span());
        self.each(
            it.op.span().start().into(),
            |genre| matches!(genre, Genre::BinaryOperator),
            |mutant, is| {
                let other = &mutant.replacement;
                (whole.clone(), format!("(if {is} {{ {left} {other} {right} }} else {{ {left} {op} {right} }})"))
            },
        );
        visit::visit_expr_binary(self, it);
    }

    fn visit_expr_unary(&mut self, it: &'ast ExprUnary) {
        let text = self.text;
        let (whole, inner) = (text.range(it.span()), &text.text[text.range(it.expr.span())]);
        self.each(
            it.op.span().start().into(),
            |genre| matches!(genre, Genre::UnaryOperator),
            |_, is| (whole.clone(), format!("(if {is} {{ {inner} }} else {{ {} }})", &text.text[whole.clone()])),
        );
        visit::visit_expr_unary(self, it);
    }

    fn visit_arm(&mut self, it: &'ast Arm) {
        let text = self.text;
        self.each(
            it.span().start().into(),
            |genre| matches!(genre, Genre::MatchArm),
            |_, is| match &it.guard {
                Some((_, guard)) => {
                    let range = text.range(guard.span());
                    (range.clone(), format!("!{is} && ({})", &text.text[range]))
                }
                None => {
                    let end = text.range(it.pat.span()).end;
                    (end..end, format!(" if !{is}"))
                }
            },
        );
        visit::visit_arm(self, it);
    }
}

/// The edits of a file for its mutants.
fn edits(text: &Text, mutants: &[Mutant]) -> Result<Vec<Edit>, Box<dyn Error>> {
    let parsed = syn::parse_file(&text.text)?;
    let mut finder = Finder { text, mutants, edits: Vec::new() };
    finder.visit_file(&parsed);
    for mutant in mutants {
        let is = format!("crate::mutant_switch::is({})", mutant.id);
        let (start, end) = (text.offset(mutant.span.start), text.offset(mutant.span.end));
        let with = match mutant.genre {
            Genre::FnValue => format!("if {is} {{ return {}; }} ", mutant.replacement),
            Genre::MatchArmGuard => {
                format!("(if {is} {{ {} }} else {{ {} }})", mutant.replacement, &text.text[start..end])
            }
            Genre::BinaryOperator | Genre::UnaryOperator | Genre::MatchArm => continue,
        };
        let range = if matches!(mutant.genre, Genre::FnValue) { start..start } else { start..end };
        finder.edits.push(Edit { range, with, id: mutant.id });
    }
    Ok(finder.edits)
}

/// Applies the edits that do not overlap; returns the text and the ids of the applied ones.
fn applied(text: &Text, mut edits: Vec<Edit>) -> (String, Vec<u32>) {
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let (mut out, mut done, mut ids) = (String::new(), 0, Vec::new());
    for edit in edits {
        if edit.range.start < done || ids.contains(&edit.id) {
            continue;
        }
        out.push_str(&text.text[done..edit.range.start]);
        out.push_str(&edit.with);
        done = edit.range.end;
        ids.push(edit.id);
    }
    out.push_str(&text.text[done..]);
    (out, ids)
}

fn main() -> Result<(), Box<dyn Error>> {
    let tree = env::args().nth(1).ok_or("the folder of the clone is missing")?;
    let tree = Path::new(&tree);
    let all: Vec<Mutant> = serde_json::from_reader(io::stdin().lock())?;
    let mut by_file: BTreeMap<String, Vec<Mutant>> = BTreeMap::new();
    for mutant in all {
        by_file.entry(mutant.file.clone()).or_default().push(mutant);
    }
    let mut left_out = Vec::new();
    let mut crates: Vec<&str> = by_file.keys().filter_map(|file| file.split('/').next()).collect();
    crates.dedup();
    for name in crates {
        let root = tree.join(name).join("src/lib.rs");
        fs::write(&root, fs::read_to_string(&root)? + SWITCH)?;
    }
    for (file, mutants) in &by_file {
        let path = tree.join(file);
        let text = Text::new(fs::read_to_string(&path)?);
        let (out, ids) = applied(&text, edits(&text, mutants)?);
        fs::write(&path, out)?;
        left_out.extend(mutants.iter().map(|mutant| mutant.id).filter(|id| !ids.contains(id)));
    }
    println!("{}", serde_json::to_string(&left_out)?);
    Ok(())
}
