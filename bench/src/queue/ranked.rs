//! The keys that a worker takes before the last one in use of a list, with ranks and without: how long routes in use
//! keep an old address after a start or a repeated list.

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
        let names: Vec<ObjectRef> = (0..keys).map(|number| key("listed", number)).collect();
        // The first one in use is not at the front of the list.
        let is_used = |number: usize| number % ONE_OF == ONE_OF - 1;
        for (number, name) in names.iter().enumerate() {
            queue.add(name.clone(), Lane::Slow, u64::from(ranked && !is_used(number)), now);
        }
        let used = (0..keys).filter(|number| is_used(*number)).count();
        let in_use: std::collections::HashSet<&ObjectRef> =
            names.iter().enumerate().filter(|(number, _)| is_used(*number)).map(|(_, name)| name).collect();
        let (mut taken, mut found) = (0, 0);
        while found < used
            && let Some(name) = queue.get(share, now)
        {
            taken += 1;
            found += usize::from(in_use.contains(&name));
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
