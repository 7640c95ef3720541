//! The syntax tree of an expression, made with a bounded amount of work.

use regex_syntax::ast::{self, Ast, ClassSetItem};
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{Hir, Look};

use super::super::path::RegexCase;
use super::{ExpressionFault, Extent};

/// The maximum depth of nested groups.
const DEPTH_MAX: u32 = 100;
/// The maximum work for the character classes of an expression, about one visit of a character each.
const CLASS_WORK_MAX: u64 = 1 << 19;
/// The work for a class by name: its list of ranges is copied.
const NAMED_WORK: u64 = 1 << 10;
/// The work for a class by name without regard to case: the other cases of each of its characters are looked up.
const FOLDED_WORK: u64 = 1 << 15;

/// An expression that is syntactically valid.
pub(super) struct Parsed {
    hir: Hir,
    /// The work of parsing it.
    pub(super) work: u64,
}

impl Parsed {
    /// # Errors
    /// If the text is not an expression.
    pub(super) fn of(pattern: &str, case: RegexCase, unicode: bool) -> Result<Self, ExpressionFault> {
        let insensitive = case == RegexCase::Insensitive;
        let ast = ast::parse::ParserBuilder::new().nest_limit(DEPTH_MAX).build().parse(pattern);
        let ast = ast.map_err(|error| fault(pattern, &error))?;
        let classes = ast::visit(&ast, Classes { folded: insensitive || sets_insensitive(pattern), work: 0 })?;
        let mut translator =
            TranslatorBuilder::new().utf8(false).unicode(unicode).case_insensitive(insensitive).build();
        let hir = translator.translate(pattern, &ast).map_err(|error| fault(pattern, &error))?;
        Ok(Self { hir, work: classes + pattern.len() as u64 })
    }

    /// The lengths in bytes of the shortest and the longest text that it can match.
    pub(super) fn lengths(&self, extent: Extent) -> [usize; 2] {
        let properties = self.hir.properties();
        let longest = properties.maximum_len().filter(|_| extent == Extent::Whole);
        // Without a least length it matches nothing.
        [properties.minimum_len().unwrap_or(usize::MAX), longest.unwrap_or(usize::MAX)]
    }

    /// The expression with anchors at both ends of the text, if it must match all of it.
    pub(super) fn anchored(&self, extent: Extent) -> Hir {
        match extent {
            Extent::Anywhere => self.hir.clone(),
            Extent::Whole => Hir::concat(vec![Hir::look(Look::Start), self.hir.clone(), Hir::look(Look::End)]),
        }
    }
}

/// The last line of an error about an expression; the lines before it show the expression.
fn fault(pattern: &str, error: &impl ToString) -> ExpressionFault {
    let text = error.to_string();
    let line = text.lines().next_back().unwrap_or_default();
    let why = line.strip_prefix("error: ").unwrap_or(line).to_owned();
    ExpressionFault { why, work: pattern.len() as u64 + CLASS_WORK_MAX }
}

/// Returns `true` if a part of an expression may be case-insensitive. A superfluous `true` only makes classes dearer.
fn sets_insensitive(pattern: &str) -> bool {
    pattern.match_indices("(?").any(|(at, _)| {
        let flags = pattern.get(at + 2..).unwrap_or_default().split([')', ':']).next().unwrap_or_default();
        flags.contains('i')
    })
}

/// Adds up the work for the classes of an expression.
struct Classes {
    /// Whether some may be case-insensitive.
    folded: bool,
    work: u64,
}

impl Classes {
    fn add(&mut self, work: u64) -> Result<(), ExpressionFault> {
        self.work += work;
        if self.work > CLASS_WORK_MAX {
            let why = "has too many or too large character classes".to_owned();
            return Err(ExpressionFault { why, work: self.work });
        }
        Ok(())
    }

    const fn named(&self) -> u64 {
        if self.folded { FOLDED_WORK } else { NAMED_WORK }
    }
}

impl ast::Visitor for Classes {
    type Output = u64;
    type Err = ExpressionFault;

    fn finish(self) -> Result<u64, ExpressionFault> {
        Ok(self.work)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), ExpressionFault> {
        match ast {
            Ast::ClassUnicode(_) => self.add(self.named()),
            Ast::ClassPerl(_) | Ast::Dot(_) | Ast::ClassBracketed(_) => self.add(NAMED_WORK / 4),
            Ast::Empty(_)
            | Ast::Flags(_)
            | Ast::Literal(_)
            | Ast::Assertion(_)
            | Ast::Repetition(_)
            | Ast::Group(_)
            | Ast::Alternation(_)
            | Ast::Concat(_) => Ok(()),
        }
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), ExpressionFault> {
        match item {
            ClassSetItem::Range(range) if self.folded => {
                self.add(u64::from((range.end.c as u32).saturating_sub(range.start.c as u32)))
            }
            ClassSetItem::Unicode(_) | ClassSetItem::Perl(_) => self.add(self.named()),
            ClassSetItem::Bracketed(_) | ClassSetItem::Range(_) => self.add(NAMED_WORK / 16),
            ClassSetItem::Empty(_) | ClassSetItem::Literal(_) | ClassSetItem::Ascii(_) | ClassSetItem::Union(_) => {
                Ok(())
            }
        }
    }
}
