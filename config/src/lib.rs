//! Routing as plain values: checked projections of cluster objects ([`project`]), the immutable routing model that the
//! request path reads ([`model`]), messages to users ([`finding`]) and the one place where a new model replaces the old
//! ([`published`]).
//!
//! This crate depends on no other crate of Tidegate: it does no I/O, has no `async` and reads no clock.

pub mod caught;
pub mod finding;
pub mod model;
pub mod object;
pub mod project;
pub mod published;
