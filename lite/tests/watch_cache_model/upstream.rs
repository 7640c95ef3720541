//! Changes upstream: watch events, lists after and concurrent with them, unconfirmed lists, and other histories.

use std::collections::BTreeSet;

use fastrand::Rng;
use tidegate_lite::Feed;

use super::{FREE, NAMES, Oracle, State, raw};

/// Plays a change upstream.
pub(super) fn change(feed: &Feed, oracle: &mut Oracle, rng: &mut Rng) {
    match rng.u8(..12) {
        0 => {
            oracle.real_version += rng.u64(1..4);
            feed.reached(&oracle.real_version.to_string());
            if !oracle.unconfirmed {
                oracle.version = oracle.real_version;
            }
        }
        1 => relist(feed, oracle, rng),
        2 => list_beside(feed, oracle, rng),
        3 if rng.u8(..3) == 0 => set_back(feed, oracle, rng),
        _ => {
            let (version, name, after) = draw(oracle, rng);
            tell(feed, oracle, (version, name, after));
        }
    }
}

/// A change of one object upstream.
type Drawn = (u64, &'static str, Option<bool>);

fn draw(oracle: &Oracle, rng: &mut Rng) -> Drawn {
    let (name, version) = (NAMES[rng.usize(..NAMES.len())], oracle.real_version + rng.u64(1..4));
    let goes = oracle.real.contains_key(name) && rng.u8(..3) == 0;
    (version, name, (!goes).then(|| rng.bool()))
}

/// A watch event of a change. Events after an unconfirmed list are not served.
fn tell(feed: &Feed, oracle: &mut Oracle, (version, name, after): Drawn) {
    let last = after.or(oracle.real.get(name).map(|(_, odd)| *odd)).unwrap();
    feed.event("shop", name, &raw(name, version, last), after.is_none());
    oracle.real_change(version, name, after);
    if !oracle.unconfirmed {
        oracle.change(version, name, after);
    }
}

/// A list after changes that no watch reported. In one of four, most objects are gone.
fn relist(feed: &Feed, oracle: &mut Oracle, rng: &mut Rng) {
    let most = rng.u8(..4) == 0;
    for name in NAMES {
        let version = oracle.real_version + 1;
        match rng.u8(..4) {
            0 if oracle.real.contains_key(name) => oracle.real_change(version, name, None),
            1 if most && oracle.real.contains_key(name) => oracle.real_change(version, name, None),
            1 => oracle.real_change(version + rng.u64(..3), name, Some(rng.bool())),
            _ => {}
        }
    }
    oracle.real_version += rng.u64(1..4);
    feed.list_begins();
    for (name, (version, odd)) in &oracle.real {
        feed.listed("shop", name, &raw(name, *version, *odd));
    }
    let reached = oracle.real_version;
    feed.list_done(&reached.to_string(), true, true);
    listed(oracle, reached);
}

/// A list concurrent with a watch. Either the list is of the moment in which it began, and the watch continues to
/// report changes; or the list is of a later moment, and the watch has reported the first of the changes that it
/// contains.
fn list_beside(feed: &Feed, oracle: &mut Oracle, rng: &mut Rng) {
    let later = rng.bool();
    let now = oracle.real.clone();
    let changes = rng.usize(1..4);
    let reported = if later { rng.usize(..changes) } else { changes };
    feed.list_begins();
    let halves = if later { None } else { Some(now) };
    if let Some(now) = &halves {
        for (name, (version, odd)) in now.iter().take(3) {
            feed.listed("shop", name, &raw(name, *version, *odd));
        }
    }
    for nth in 0..changes {
        let drawn = draw(oracle, rng);
        if nth < reported {
            tell(feed, oracle, drawn);
        } else {
            let (version, name, after) = drawn;
            oracle.real_change(version, name, after);
        }
    }
    match halves {
        Some(now) => {
            for (name, (version, odd)) in now.iter().skip(3) {
                feed.listed("shop", name, &raw(name, *version, *odd));
            }
        }
        None => {
            for (name, (version, odd)) in &oracle.real {
                feed.listed("shop", name, &raw(name, *version, *odd));
            }
        }
    }
    // The watch has reached the last change that it reported.
    let reached = oracle.real_version;
    feed.list_done(&reached.to_string(), true, later);
    listed(oracle, reached);
}

/// A list ends: the whole upstream state is served now, unless it would remove most objects and no earlier list
/// confirms that.
fn listed(oracle: &mut Oracle, reached: u64) {
    let served = oracle.now();
    let gone: Vec<_> = served.keys().filter(|name| !oracle.real.contains_key(*name)).copied().collect();
    let most = 2 * gone.len() > served.len() && (gone.len() > FREE || gone.len() == served.len());
    oracle.unconfirmed = most && !std::mem::take(&mut oracle.unconfirmed);
    if oracle.unconfirmed {
        return;
    }
    let mut changes: Vec<Drawn> = Vec::new();
    for (name, (version, odd)) in &oracle.real {
        if served.get(name) != Some(&(*version, *odd)) {
            changes.push((*version, *name, Some(*odd)));
        }
    }
    // Deletions get the lowest free versions.
    let taken: BTreeSet<u64> = oracle.real.values().map(|(version, _)| *version).collect();
    let mut free = (oracle.version + 1..).filter(|version| !taken.contains(version));
    changes.extend(gone.into_iter().map(|name| (free.next().unwrap(), name, None)));
    changes.sort_unstable();
    for (version, name, after) in changes {
        oracle.change(version, name, after);
    }
    oracle.version = reached;
}

/// The server is another one, or was restored from a backup, with a lower, an equal or a higher version.
fn set_back(feed: &Feed, oracle: &mut Oracle, rng: &mut Rng) {
    let reached = [oracle.version / 2, oracle.version, oracle.version + 5][rng.usize(..3)].max(1);
    let held = oracle.now();
    let mut state: State = NAMES.iter().map(|name| (*name, (rng.u64(1..=reached), rng.bool()))).collect();
    // At least one object shows that it is another history.
    let (version, odd) = held.get("a").copied().unwrap_or((1, true));
    state.insert("a", (version.min(reached), !odd));
    feed.list_begins();
    for (name, (version, odd)) in &state {
        feed.listed("shop", name, &raw(name, *version, *odd));
    }
    feed.list_done(&reached.to_string(), true, true);
    oracle.void = oracle.void.max(oracle.version);
    (oracle.real, oracle.real_version, oracle.unconfirmed) = (state.clone(), reached, false);
    (oracle.version, oracle.events, oracle.states) = (reached, Vec::new(), [(reached, state)].into());
}
