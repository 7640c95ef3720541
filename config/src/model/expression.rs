//! Regular expressions of objects. This is the only type that compares a text of a client with one, so it decides what
//! an expression may cost: [docs/decisions/0043](../../../docs/decisions/0043-price-of-expressions.md).
//!
//! A match takes **steps**: one for each letter of the text that a deterministic automaton reads, or
//! a few for each state of a nondeterministic one at each letter. An expression has a price, the steps of the
//! longest text that it is tried with, and the expressions of one request share one [`Steps`].

mod alphabet;
mod automaton;
mod parsed;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use alphabet::Alphabet;
use automaton::Automaton;
use parsed::Parsed;
use serde::{Serialize, Serializer};

use super::path::RegexCase;

/// The maximum number of steps of all expressions that one request meets, besides those for hosts. One that would take
/// more is refused: no other route may take it instead. A step takes 2 ns, or 4 in a text that is not ASCII: at most 8
/// ms in all.
pub const REQUEST_STEPS_MAX: u64 = 1 << 21;
/// The maximum price of the expressions of the routes of one host that a request for one path tries in turn, without
/// those of other literal paths: half of the steps of a request.
pub const ROUTES_STEPS_MAX: u64 = REQUEST_STEPS_MAX / 2;

/// The steps for each byte of a text that is not ASCII, besides those of the automaton: its characters are looked up.
const LOOK_UP_STEPS: u64 = 3;

/// The kind of text that an expression is compared with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// The name of a host.
    HostName,
    /// A normalised path.
    Path,
    /// The value of a header or of a query parameter.
    Value,
    /// The value of `User-Agent`, compared by bytes: classes such as `\w` are ASCII.
    Agent,
}

impl Subject {
    /// The length in bytes of the longest text that an expression is tried with.
    #[must_use]
    pub const fn bytes_max(self) -> usize {
        match self {
            Self::HostName => 255,
            Self::Path => 4 << 10,
            Self::Value | Self::Agent => 8 << 10,
        }
    }

    /// The maximum price of one expression in steps. Expressions for hosts are tried one after the other for each name
    /// that no other host has.
    const fn steps_max(self) -> u64 {
        match self {
            Self::HostName => 1 << 12,
            Self::Path | Self::Value | Self::Agent => 1 << 20,
        }
    }

    /// The status of a request with such a text that an expression could not be tried with (RFC 9110 section 15.5.15,
    /// RFC 6585 section 5).
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::HostName | Self::Path => 414,
            Self::Value | Self::Agent => 431,
        }
    }
}

/// The part of a text that an expression has to match.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Extent {
    /// All of it.
    Whole,
    /// Any part.
    Anywhere,
}

/// How an expression is compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Comparison {
    /// The text it is compared with.
    pub subject: Subject,
    /// Whether it is case-sensitive.
    pub case: RegexCase,
    /// The part of the text that it has to match.
    pub extent: Extent,
}

/// A regular expression with its price.
#[derive(Clone)]
pub struct Expression(Arc<Compiled>);

struct Compiled {
    pattern: Box<str>,
    /// The pattern with its anchors, for dumps.
    text: Box<str>,
    comparison: Comparison,
    automaton: Automaton,
    /// `None` if the automaton reads bytes.
    alphabet: Option<Alphabet>,
    /// The lengths in bytes of the shortest and the longest text that it can match.
    lengths: [usize; 2],
    work: u64,
}

/// Why a text cannot be used as an expression. Its text is a predicate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpressionFault {
    why: String,
    /// An upper limit of the work of finding out; see [`Expression::work`].
    pub work: u64,
}

impl fmt::Display for ExpressionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "is not a usable expression ({})", self.why)
    }
}

impl Expression {
    /// Checks that a text is an expression, without compiling it. Returns the work; see [`Expression::work`].
    ///
    /// # Errors
    /// If it is not a valid expression of linear time, or its character classes are too large.
    pub fn check(pattern: &str) -> Result<u64, ExpressionFault> {
        Parsed::of(pattern, RegexCase::Sensitive, true).map(|parsed| parsed.work)
    }

    /// Compiles an expression.
    ///
    /// # Errors
    /// If it is not a valid expression of linear time, or one of its limits is exceeded.
    pub fn new(pattern: &str, comparison: Comparison) -> Result<Self, ExpressionFault> {
        let Comparison { subject, case, extent } = comparison;
        let parsed = Parsed::of(pattern, case, subject != Subject::Agent)?;
        let lengths = parsed.lengths(extent);
        let hir = parsed.anchored(extent);
        let spelled = Alphabet::of(&hir);
        let hir = spelled.as_ref().map_or(&hir, |(_, hir)| hir);
        let (automaton, work) = Automaton::of(hir, extent)?;
        let text = match extent {
            Extent::Whole => format!(r"\A(?:{pattern})\z").into(),
            Extent::Anywhere => pattern.into(),
        };
        let alphabet = spelled.map(|(alphabet, _)| alphabet);
        let work = parsed.work.saturating_add(work);
        let compiled = Compiled { pattern: pattern.into(), text, comparison, automaton, alphabet, lengths, work };
        let expression = Self(Arc::new(compiled));
        let price = expression.price();
        if price > subject.steps_max() {
            let bytes = expression.longest().min(subject.bytes_max());
            let max = subject.steps_max();
            let why = format!("may take {price} steps for {bytes} bytes; the limit is {max}");
            return Err(ExpressionFault { why, work });
        }
        Ok(expression)
    }

    /// The expression as it is written.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.0.pattern
    }

    /// The expression, with anchors if it must match the whole text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// The number of steps for the longest text that it is tried with, if the text is ASCII.
    #[must_use]
    pub fn price(&self) -> u64 {
        self.cost(self.longest().min(self.0.comparison.subject.bytes_max()), true)
    }

    /// Returns `true` for clones, which are compiled once.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How it is compared.
    #[must_use]
    pub fn comparison(&self) -> Comparison {
        self.0.comparison
    }

    /// The memory that it holds, in bytes. Matching holds none.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let alphabet = self.0.alphabet.as_ref().map_or(0, Alphabet::bytes);
        size_of::<Compiled>() + self.0.pattern.len() + self.0.text.len() + alphabet + self.0.automaton.bytes()
    }

    /// An upper limit of the work of compiling it, in visits of a state or of a character.
    #[must_use]
    pub fn work(&self) -> u64 {
        self.0.work
    }

    /// Returns `true` if it matches a text of a request. `false` if the text is too long to be tried, or the steps of
    /// the request do not suffice: then `steps` say so, and the request must be refused.
    #[must_use]
    pub fn is_match(&self, text: &[u8], steps: &Steps) -> bool {
        if !self.fits(text) {
            return false;
        }
        let subject = self.0.comparison.subject;
        let is_ascii = text.is_ascii();
        let cost = (text.len() <= subject.bytes_max()).then(|| self.cost(text.len(), is_ascii));
        let Some(cost) = cost.filter(|cost| steps.have(*cost)) else {
            steps.refuse(subject);
            return false;
        };
        let (matches, taken) = self.run(text);
        steps.take(taken.filter(|_| is_ascii).unwrap_or(cost));
        matches
    }

    /// Returns whether it matches a text; `None` if the text is too long to be tried.
    #[must_use]
    pub fn test(&self, text: &[u8]) -> Option<bool> {
        if !self.fits(text) {
            return Some(false);
        }
        (text.len() <= self.0.comparison.subject.bytes_max()).then(|| self.run(text).0)
    }

    fn longest(&self) -> usize {
        self.0.lengths[1]
    }

    /// Returns `false` for a text of a length that it does not match.
    fn fits(&self, text: &[u8]) -> bool {
        let [min, max] = self.0.lengths;
        (min..=max).contains(&text.len())
    }

    /// The steps for a text of this length in bytes.
    fn cost(&self, len: usize, is_ascii: bool) -> u64 {
        let look_up = if is_ascii { 0 } else { LOOK_UP_STEPS };
        (len as u64 + 1).saturating_mul(self.0.automaton.steps_a_letter() + look_up)
    }

    /// Returns whether it matches, and the number of steps, if it may be less than the cost.
    fn run(&self, text: &[u8]) -> (bool, Option<u64>) {
        match &self.0.alphabet {
            None => self.0.automaton.run(text.iter().copied()),
            Some(alphabet) => self.0.automaton.run(alphabet.spell(text)),
        }
    }
}

/// Expressions with the same text and comparison are equal.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Expression {}

impl PartialOrd for Expression {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By text, then by comparison. Clones are compared by their pointers.
impl Ord for Expression {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.is_same(other) {
            return Ordering::Equal;
        }
        (&self.0.text, self.0.comparison).cmp(&(&other.0.text, other.0.comparison))
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Expression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The steps that the expressions of one request may take, and whether they suffice.
#[derive(Debug)]
pub struct Steps {
    left: Cell<u64>,
    refused: Cell<Option<Subject>>,
}

impl Steps {
    /// The steps of one request.
    #[must_use]
    pub const fn of_request() -> Self {
        Self { left: Cell::new(REQUEST_STEPS_MAX), refused: Cell::new(None) }
    }

    /// The text that an expression could not be tried with, because it is too long, or because the steps are used up.
    /// It is not known whether the expression matches, so the request must be refused.
    #[must_use]
    pub const fn untried(&self) -> Option<Subject> {
        self.refused.get()
    }

    /// The number of steps that were taken.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        REQUEST_STEPS_MAX - self.left.get()
    }

    /// Returns `true` if there are as many, and every expression so far could be tried.
    fn have(&self, steps: u64) -> bool {
        self.refused.get().is_none() && steps <= self.left.get()
    }

    fn take(&self, steps: u64) {
        self.left.set(self.left.get().saturating_sub(steps));
    }

    fn refuse(&self, subject: Subject) {
        if self.refused.get().is_none() {
            self.refused.set(Some(subject));
        }
    }
}
