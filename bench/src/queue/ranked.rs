//! The keys that a worker takes before the last one in use of a list, with ranks and without: how long routes in use
//! keep an old address after a start or a repeated list.

use std::collections::HashSet;

use comfy_table::Table;
use serde::Serialize;
use tidegate_config::object::ObjectRef;
use tidegate_control::options::Options;
use tidegate_control::{Lane, Queue};

use super::probe::key;
use crate::clock::now;

/// One key of this number is in use.
const ONE_OF: usize = 100;

/// One line.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Ranked {
    /// The number of keys of the list.
    keys: usize,
    /// The number of those in use, spread over the list.
    used: usize,
    /// `true` if they have a lower rank than the others.
    ranked: bool,
    /// The number of keys taken until all of those in use were.
    taken: usize,
}

/// Both lines of a list. No key waits for long enough to be old.
pub(super) fn measure(keys: usize) -> [Ranked; 2] {
    [true, false].map(|ranked| {
        let (now, share) = (now(), Options::default().pace.share);
        let mut queue: Queue<ObjectRef> = Queue::default();
        // The first one in use is not at the front of the list.
        let mut in_use: HashSet<ObjectRef> =
            (0..keys).skip(ONE_OF - 1).step_by(ONE_OF).map(|number| key("listed", number)).collect();
        for name in (0..keys).map(|number| key("listed", number)) {
            let rank = u64::from(ranked && !in_use.contains(&name));
            queue.add(name, Lane::Slow, rank, now);
        }
        let (used, mut taken) = (in_use.len(), 0);
        while !in_use.is_empty()
            && let Some(name) = queue.get(share, now)
        {
            taken += 1;
            in_use.remove(&name);
            queue.done(&name, now);
        }
        Ranked { keys, used, ranked, taken }
    })
}

/// Complains when a key in use waits for one that is not.
///
/// # Errors
/// Names the list.
pub(super) fn check(lines: &[Ranked]) -> anyhow::Result<()> {
    for Ranked { keys, used, taken, .. } in lines.iter().filter(|line| line.ranked) {
        anyhow::ensure!(taken == used, "of {keys} keys, {taken} were taken before the last of {used} in use");
    }
    Ok(())
}

/// One line per list, with ranks and without.
pub(super) fn table(lines: &[Ranked]) -> Table {
    let lines = lines.iter().map(|line| {
        let rank = if line.ranked { "by use" } else { "none" };
        vec![rank.to_owned(), line.keys.to_string(), line.used.to_string(), line.taken.to_string()]
    });
    crate::table::table(1, ["rank", "keys", "in use", "taken until all of those were"], lines)
}
