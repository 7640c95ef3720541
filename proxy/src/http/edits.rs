//! The edits of a head: a list that a driver applies in order while it writes the head. The values are in a single
//! buffer, so that a reused list allocates nothing.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use super::names::{is_odd, is_other_spelling, same_name};

/// The capacity that a list keeps from one head to the next: a number of edits, and of bytes of their values. Larger
/// capacity is freed.
const KEPT: (usize, usize) = (64, 4 * 1024);

/// The edits of one head.
#[derive(Default)]
pub(crate) struct Edits {
    list: Vec<Listed>,
    values: Vec<u8>,
    target: Option<Range<usize>>,
    /// The lengths of the names whose existing values are removed, by one edit and by several: most headers have
    /// another length, and need not be compared with any of them.
    removing: (Lengths, Lengths),
    /// The lengths of the names of added values.
    adding: Lengths,
}

/// A set of lengths modulo 64.
#[derive(Clone, Copy, Default)]
pub(crate) struct Lengths(u64);

impl Lengths {
    /// Those of these names.
    pub(crate) const fn of(names: &[&str]) -> Self {
        let (mut lengths, mut place) = (Self(0), 0);
        while place < names.len() {
            lengths.add(names[place].len());
            place += 1;
        }
        lengths
    }

    /// Returns `true` if it may have a length.
    pub(crate) const fn has(self, length: usize) -> bool {
        self.0 >> (length % 64) & 1 == 1
    }

    /// Adds a length.
    pub(crate) const fn add(&mut self, length: usize) {
        self.0 |= 1 << (length % 64);
    }
}

struct Listed {
    name: Name,
    how: How,
}

/// The name of a header. Those that the edge sets itself are not cloned: each request has some ten of them.
pub(crate) enum Name {
    /// One of the edge's own.
    Own(&'static HeaderName),
    /// Any other.
    Other(HeaderName),
}

impl Name {
    const fn get(&self) -> &HeaderName {
        match self {
            Self::Own(name) => name,
            Self::Other(name) => name,
        }
    }
}

impl From<&'static HeaderName> for Name {
    fn from(name: &'static HeaderName) -> Self {
        Self::Own(name)
    }
}

impl From<HeaderName> for Name {
    fn from(name: HeaderName) -> Self {
        Self::Other(name)
    }
}

enum How {
    Remove,
    Set(Range<usize>),
    Add(Range<usize>),
}

/// One edit of a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Edit<'a> {
    /// Removes every value.
    Remove(&'a HeaderName),
    /// Replaces every value by one.
    Set(&'a HeaderName, &'a [u8]),
    /// Adds a value to the existing ones.
    Add(&'a HeaderName, &'a [u8]),
}

/// One change of a header, with an owned value.
pub(crate) enum Change {
    /// See [`Edit::Remove`].
    Remove,
    /// See [`Edit::Set`].
    Set(HeaderValue),
    /// See [`Edit::Add`].
    Add(HeaderValue),
}

impl<'a> Edit<'a> {
    /// The name of the header.
    pub(crate) const fn name(&self) -> &'a HeaderName {
        match *self {
            Self::Remove(name) | Self::Set(name, _) | Self::Add(name, _) => name,
        }
    }

    /// Returns `true` if it removes existing values.
    pub(crate) const fn removes(&self) -> bool {
        matches!(self, Self::Remove(_) | Self::Set(..))
    }
}

impl fmt::Debug for Edits {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.list.iter().map(|listed| listed.name.get())).finish()
    }
}

impl Edits {
    /// Removes all edits and keeps only the usual capacity.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.list.shrink_to(KEPT.0);
        self.values.clear();
        self.values.shrink_to(KEPT.1);
        self.target = None;
        self.removing = Default::default();
        self.adding = Lengths::default();
    }

    /// Removes every value of a header.
    pub(crate) fn remove(&mut self, name: impl Into<Name>) {
        let name = name.into();
        self.removes_one_more(name.get());
        self.list.push(Listed { name, how: How::Remove });
    }

    /// Removes every value of a header before all other edits, which may set or add values of it.
    pub(crate) fn remove_first(&mut self, name: HeaderName) {
        self.removes_one_more(&name);
        self.list.insert(0, Listed { name: Name::Other(name), how: How::Remove });
    }

    /// Replaces every value of a header by the one that `write` writes.
    pub(crate) fn set(&mut self, name: impl Into<Name>, write: impl FnOnce(&mut Vec<u8>)) {
        let (name, value) = (name.into(), self.written(write));
        self.removes_one_more(name.get());
        self.list.push(Listed { name, how: How::Set(value) });
    }

    /// Adds a value to a header.
    pub(crate) fn add(&mut self, name: impl Into<Name>, value: &HeaderValue) {
        self.append(name, |out| out.extend_from_slice(value.as_bytes()));
    }

    /// Adds the value that `write` writes to a header.
    pub(crate) fn append(&mut self, name: impl Into<Name>, write: impl FnOnce(&mut Vec<u8>)) {
        let (name, value) = (name.into(), self.written(write));
        self.adding.add(name.get().as_str().len());
        self.list.push(Listed { name, how: How::Add(value) });
    }

    /// Replaces the target by the one that `write` writes, in origin form.
    pub(crate) fn set_target(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.target = Some(self.written(write));
    }

    /// The same edits with values that share one buffer. An invalid value removes the header: the client's value must
    /// never take the place of ours. Added values come from routes and are valid.
    pub(crate) fn into_changes(self) -> impl Iterator<Item = (HeaderName, Change)> {
        let values = Bytes::from(self.values);
        self.list.into_iter().filter_map(move |Listed { name, how }| {
            let value = |range| HeaderValue::from_maybe_shared(values.slice(range));
            let change = match how {
                How::Remove => Change::Remove,
                How::Set(range) => value(range).map_or(Change::Remove, Change::Set),
                How::Add(range) => Change::Add(value(range).ok()?),
            };
            let name = match name {
                Name::Own(name) => name.clone(),
                Name::Other(name) => name,
            };
            Some((name, change))
        })
    }

    /// The new target, if it changes.
    pub(crate) fn target(&self) -> Option<&[u8]> {
        self.target.clone().and_then(|range| self.values.get(range))
    }

    /// The edits of headers, in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Edit<'_>> + Clone {
        let value = |range: &Range<usize>| self.values.get(range.clone()).unwrap_or_default();
        self.list.iter().map(move |listed| match &listed.how {
            How::Remove => Edit::Remove(listed.name.get()),
            How::Set(range) => Edit::Set(listed.name.get(), value(range)),
            How::Add(range) => Edit::Add(listed.name.get(), value(range)),
        })
    }

    /// Returns `true` if existing values of a header are removed; its name is given in any case.
    pub(crate) fn removes(&self, name: &[u8]) -> bool {
        let is = |own: &HeaderName| same_name(own.as_str().as_bytes(), name);
        self.removing.0.has(name.len()) && self.iter().any(|edit| edit.removes() && is(edit.name()))
    }

    /// Returns `true` if a header is there after the edits, whether it was before or not: the last edit of it adds it.
    pub(crate) fn leaves(&self, name: &HeaderName) -> bool {
        let last = self.iter().rev().find(|edit| edit.name() == name);
        last.is_some_and(|edit| !matches!(edit, Edit::Remove(_)))
    }

    /// Returns `true` if a name of the list has a character besides letters, digits and hyphens.
    pub(crate) fn has_odd_names(&self) -> bool {
        self.list.iter().any(|listed| match &listed.name {
            Name::Own(_) => false,
            Name::Other(name) => is_odd(name.as_str().as_bytes()),
        })
    }

    /// The lengths of the names in the list.
    pub(crate) const fn lengths(&self) -> Lengths {
        Lengths(self.removing.0.0 | self.adding.0)
    }

    /// Returns `true` if a name is another spelling of one in the list ([`is_other_spelling`]).
    pub(crate) fn has_other_spelling(&self, name: &[u8]) -> bool {
        let is = |listed: &Listed| is_other_spelling(name, listed.name.get().as_str().as_bytes());
        self.lengths().has(name.len()) && self.list.iter().any(is)
    }

    /// The headers that are set or added, and that no later edit removes again, in order.
    pub(crate) fn lasting(&self) -> impl Iterator<Item = (&HeaderName, &[u8])> {
        let mut rest = self.iter();
        std::iter::from_fn(move || {
            loop {
                let edit = rest.next()?;
                let (Edit::Set(name, value) | Edit::Add(name, value)) = edit else { continue };
                let others = if edit.removes() { self.removing.1 } else { self.removing.0 };
                let again = |later: Edit<'_>| later.removes() && later.name() == name;
                if !others.has(name.as_str().len()) || !rest.clone().any(again) {
                    return Some((name, value));
                }
            }
        })
    }

    fn removes_one_more(&mut self, name: &HeaderName) {
        let (length, (one, several)) = (name.as_str().len(), &mut self.removing);
        if one.has(length) {
            several.add(length);
        }
        one.add(length);
    }

    fn written(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Range<usize> {
        let start = self.values.len();
        write(&mut self.values);
        start..self.values.len()
    }
}
