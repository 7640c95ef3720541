//! The alphabet of an expression: one letter, a byte, for all characters that the expression does not tell apart. An
//! automaton over letters is small although a class such as `\w` has 140,000 characters, and its matches are the same.

use std::collections::{BTreeMap, BTreeSet};

use regex_syntax::hir::{Class, ClassBytes, ClassBytesRange, ClassUnicode, ClassUnicodeRange};
use regex_syntax::hir::{Hir, HirKind, Look, LookSet, Repetition};

/// The letter of a byte that is not part of a character. No expression matches it.
const NO_CHARACTER: u8 = 0xff;
/// The maximum number of letters. Most expressions have fewer than ten.
const LETTERS_MAX: usize = 180;

/// The letters of characters.
pub(super) struct Alphabet {
    ascii: [u8; 128],
    /// Of the other characters: the first of those with the same letter, shifted by eight bits, and the letter.
    /// Ascending.
    others: Box<[u32]>,
}

impl Alphabet {
    /// The alphabet of an expression, and the expression in its letters. `None` if it has too many letters, or compares
    /// bytes that are not characters.
    pub(super) fn of(expression: &Hir) -> Option<(Self, Hir)> {
        let letters = Letters::of(expression)?;
        let spelled = letters.spell(expression)?;
        let ascii = std::array::from_fn(|byte| letters.letter(u32::try_from(byte).unwrap_or_default()));
        let others = letters.intervals.iter().filter(|(first, _)| *first >= 0x80);
        let mut others: Vec<u32> = others.map(|(first, letter)| first << 8 | u32::from(*letter)).collect();
        others.dedup_by_key(|entry| *entry & 0xff);
        Some((Self { ascii, others: others.into() }, spelled))
    }

    /// Its size in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.others)
    }

    /// The letters of a text.
    pub(super) fn spell(&self, mut text: &[u8]) -> impl Iterator<Item = u8> {
        std::iter::from_fn(move || {
            let (byte, rest) = text.split_first()?;
            if let Some(letter) = self.ascii.get(usize::from(*byte)) {
                text = rest;
                return Some(*letter);
            }
            let found = character(text);
            text = text.get(found.map_or(1, char::len_utf8)..).unwrap_or_default();
            Some(found.map_or(NO_CHARACTER, |found| self.other(found)))
        })
    }

    /// The letter of a character that is not ASCII.
    fn other(&self, character: char) -> u8 {
        let after = self.others.partition_point(|entry| *entry >> 8 <= u32::from(character));
        let [.., letter] =
            after.checked_sub(1).and_then(|at| self.others.get(at)).copied().unwrap_or(0xff).to_be_bytes();
        letter
    }
}

/// The character of several bytes that a text begins with.
fn character(text: &[u8]) -> Option<char> {
    let len = match text.first()? {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return None,
    };
    std::str::from_utf8(text.get(..len)?).ok()?.chars().next()
}

/// Letters in the making.
struct Letters {
    /// The first character of each interval with one letter, ascending, and the letter.
    intervals: Vec<(u32, u8)>,
    /// A character of each letter.
    samples: BTreeMap<u8, u32>,
}

impl Letters {
    fn of(expression: &Hir) -> Option<Self> {
        let words = Words::of(expression.properties().look_set())?;
        let mut sets = Sets::default();
        sets.see(expression)?;
        // Lines end with these.
        sets.characters.extend(['\n', '\r']);
        sets.classes.extend(words.class());
        let mut cuts = BTreeSet::from([0, 0x80]);
        let all = sets.all();
        for range in all.iter().flat_map(|class| class.ranges()) {
            cuts.extend([u32::from(range.start()), u32::from(range.end()) + 1]);
        }
        let cuts: Vec<u32> = cuts.into_iter().filter(|cut| *cut <= u32::from(char::MAX)).collect();
        let groups = groups(&cuts, &all)?;
        let mut free = words.letters();
        let mut letters: BTreeMap<usize, u8> = BTreeMap::new();
        let mut samples = BTreeMap::new();
        let mut intervals = Vec::with_capacity(cuts.len());
        for (first, group) in cuts.into_iter().zip(groups) {
            let letter = match letters.get(&group) {
                Some(letter) => *letter,
                None => free.take(&words, first)?,
            };
            letters.insert(group, letter);
            samples.entry(letter).or_insert(first);
            intervals.push((first, letter));
        }
        Some(Self { intervals, samples })
    }

    fn letter(&self, character: u32) -> u8 {
        let after = self.intervals.partition_point(|(first, _)| *first <= character);
        after.checked_sub(1).and_then(|at| self.intervals.get(at)).map_or(NO_CHARACTER, |(_, letter)| *letter)
    }

    /// An expression in these letters.
    fn spell(&self, expression: &Hir) -> Option<Hir> {
        let all = |parts: &[Hir]| parts.iter().map(|part| self.spell(part)).collect::<Option<Vec<Hir>>>();
        Some(match expression.kind() {
            HirKind::Empty => Hir::empty(),
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0).ok()?;
                Hir::literal(text.chars().map(|character| self.letter(character.into())).collect::<Box<[u8]>>())
            }
            HirKind::Class(class) => {
                let class = characters(class)?;
                let letters = self.samples.iter().filter(|(_, sample)| contains(&class, **sample));
                let ranges = letters.map(|(letter, _)| ClassBytesRange::new(*letter, *letter));
                Hir::class(Class::Bytes(ClassBytes::new(ranges)))
            }
            HirKind::Look(look) => Hir::look(of_letters(*look)),
            HirKind::Repetition(Repetition { min, max, greedy, sub }) => {
                let sub = Box::new(self.spell(sub)?);
                Hir::repetition(Repetition { min: *min, max: *max, greedy: *greedy, sub })
            }
            HirKind::Capture(capture) => self.spell(&capture.sub)?,
            HirKind::Concat(parts) => Hir::concat(all(parts)?),
            HirKind::Alternation(parts) => Hir::alternation(all(parts)?),
        })
    }
}

/// The characters that an expression tells apart.
#[derive(Default)]
struct Sets {
    characters: BTreeSet<char>,
    classes: Vec<ClassUnicode>,
}

impl Sets {
    fn see(&mut self, expression: &Hir) -> Option<()> {
        match expression.kind() {
            HirKind::Empty | HirKind::Look(_) => {}
            HirKind::Literal(literal) => self.characters.extend(std::str::from_utf8(&literal.0).ok()?.chars()),
            HirKind::Class(class) => {
                let class = characters(class)?;
                if !self.classes.contains(&class) {
                    self.classes.push(class);
                }
            }
            HirKind::Repetition(repetition) => self.see(&repetition.sub)?,
            HirKind::Capture(capture) => self.see(&capture.sub)?,
            HirKind::Concat(parts) | HirKind::Alternation(parts) => {
                parts.iter().try_for_each(|part| self.see(part))?;
            }
        }
        (self.characters.len() + self.classes.len() <= LETTERS_MAX).then_some(())
    }

    fn all(self) -> Vec<ClassUnicode> {
        let singles = self.characters.into_iter().map(|one| ClassUnicode::new([ClassUnicodeRange::new(one, one)]));
        singles.chain(self.classes).collect()
    }
}

/// The group of each interval: intervals that are in the same classes have the same one. `None` if there are too many.
fn groups(cuts: &[u32], classes: &[ClassUnicode]) -> Option<Vec<usize>> {
    let mut groups = vec![0; cuts.len()];
    for class in classes {
        let mut numbers: BTreeMap<(usize, bool), usize> = BTreeMap::new();
        let mut ranges = class.ranges().iter().peekable();
        for (cut, group) in cuts.iter().zip(&mut groups) {
            while ranges.next_if(|range| u32::from(range.end()) < *cut).is_some() {}
            let inside = ranges.peek().is_some_and(|range| u32::from(range.start()) <= *cut);
            let next = numbers.len();
            *group = *numbers.entry((*group, inside)).or_insert(next);
        }
        if numbers.len() > LETTERS_MAX {
            return None;
        }
    }
    Some(groups)
}

/// A class as characters; `None` if it has bytes that are none.
fn characters(class: &Class) -> Option<ClassUnicode> {
    match class {
        Class::Unicode(class) => Some(class.clone()),
        Class::Bytes(class) => class.to_unicode_class(),
    }
}

fn contains(class: &ClassUnicode, character: u32) -> bool {
    let after = class.ranges().partition_point(|range| u32::from(range.start()) <= character);
    let range = after.checked_sub(1).and_then(|at| class.ranges().get(at));
    range.is_some_and(|range| character <= u32::from(range.end()))
}

/// The characters of words, if an expression asks for their boundaries.
enum Words {
    NotAsked,
    Ascii,
    Unicode,
}

impl Words {
    /// `None` if an expression asks for boundaries of both kinds.
    fn of(looks: LookSet) -> Option<Self> {
        match (looks.contains_word_ascii(), looks.contains_word_unicode()) {
            (true, true) => None,
            (true, false) => Some(Self::Ascii),
            (false, true) => Some(Self::Unicode),
            (false, false) => Some(Self::NotAsked),
        }
    }

    fn class(&self) -> Option<ClassUnicode> {
        let pattern = match self {
            Self::NotAsked => return None,
            Self::Ascii => "[0-9A-Za-z_]",
            Self::Unicode => r"\w",
        };
        match regex_syntax::parse(pattern).ok()?.into_kind() {
            HirKind::Class(class) => characters(&class),
            HirKind::Empty
            | HirKind::Literal(_)
            | HirKind::Look(_)
            | HirKind::Repetition(_)
            | HirKind::Capture(_)
            | HirKind::Concat(_)
            | HirKind::Alternation(_) => None,
        }
    }

    fn letters(&self) -> FreeLetters {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let all = || (0..NO_CHARACTER).filter(|byte| !matches!(byte, b'\n' | b'\r'));
        FreeLetters {
            class: self.class(),
            words: all().filter(is_word).rev().collect(),
            others: all().filter(|byte| !is_word(byte)).rev().collect(),
        }
    }
}

/// Letters that stand for nothing yet: those that automata take for parts of words, and the others.
struct FreeLetters {
    class: Option<ClassUnicode>,
    words: Vec<u8>,
    others: Vec<u8>,
}

impl FreeLetters {
    /// A letter for a character and those like it; `None` if there is none left.
    fn take(&mut self, words: &Words, character: u32) -> Option<u8> {
        if let Some(end @ ('\n' | '\r')) = char::from_u32(character) {
            return u8::try_from(end).ok();
        }
        let is_word = self.class.as_ref().is_some_and(|class| contains(class, character));
        match words {
            Words::Ascii | Words::Unicode if is_word => self.words.pop(),
            Words::NotAsked | Words::Ascii | Words::Unicode => self.others.pop(),
        }
    }
}

/// The same look in letters, where the parts of words are ASCII.
const fn of_letters(look: Look) -> Look {
    match look {
        Look::WordUnicode => Look::WordAscii,
        Look::WordUnicodeNegate => Look::WordAsciiNegate,
        Look::WordStartUnicode => Look::WordStartAscii,
        Look::WordEndUnicode => Look::WordEndAscii,
        Look::WordStartHalfUnicode => Look::WordStartHalfAscii,
        Look::WordEndHalfUnicode => Look::WordEndHalfAscii,
        Look::Start
        | Look::End
        | Look::StartLF
        | Look::EndLF
        | Look::StartCRLF
        | Look::EndCRLF
        | Look::WordAscii
        | Look::WordAsciiNegate
        | Look::WordStartAscii
        | Look::WordEndAscii
        | Look::WordStartHalfAscii
        | Look::WordEndHalfAscii => look,
    }
}
