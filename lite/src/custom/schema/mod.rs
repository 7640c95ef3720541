//! Structural schemas: the allowed content of objects of a custom kind. They are read once, when a definition arrives.
//!
//! The rules and the words of refusals are those of the API server's own validation, which no library has: its JSON
//! schema is a dialect with extensions, and clients and tests know its sentences.

mod check;
mod fill;
mod lists;
mod meta;
mod number;
mod prune;
mod read;

pub(crate) use self::check::{blocks, validate};
pub(crate) use self::fill::{fill, normalise};
pub(crate) use self::meta::coerce;
pub(crate) use self::prune::prune;
pub(crate) use self::read::read;
