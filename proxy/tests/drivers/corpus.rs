//! The whole corpus, generated from tables and from one seed, so that every run plays the same cases.

use super::case::Case;
use super::{bodies, combinations, compressed, fields, heads, mutations, responses};

/// The seed of the corpus.
pub const SEED: u64 = 4;

pub fn all() -> Vec<Case> {
    let mut cases = heads::all();
    cases.extend(fields::all());
    cases.extend(bodies::all());
    cases.extend(responses::all());
    cases.extend(compressed::all());
    let mut random = fastrand::Rng::with_seed(SEED);
    cases.extend(combinations::all(&mut random));
    cases.extend(mutations::of_requests(&cases, &mut random));
    cases.extend(mutations::of_responses(&cases, &mut random));
    cases
}
