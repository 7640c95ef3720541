//! The properties of the queue, and the tests for them. The model and its traces are `model.rs`, `ops.rs` and
//! `traces.rs`, and its counts `tally.rs`; thread interleavings are checked exhaustively by `control/tests/loom.rs`.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

mod counts;
mod delays;
mod lanes;
mod model;
mod ops;
mod tally;
mod traces;
mod workers;

use std::time::Instant;

use tidegate_control::Queue;

/// The properties, and the test for each beside the model, which checks most of them after every step.
const PROPERTIES: [(&str, &str); 34] = [
    ("a key is at most once in the two lanes together", "the_queue_follows_its_model"),
    ("no two workers have one key at the same time", "the_queue_follows_its_model"),
    ("what waits is what was asked for and is not in work", "the_queue_follows_its_model"),
    ("who asks before a key is taken is answered once, who asks later is answered again", "no_update_is_lost"),
    ("nothing comes that nobody asked for", "no_update_is_lost"),
    ("a slow key that becomes urgent moves to the end of the fast lane", "keys_move_up_and_keep_their_place"),
    ("a fast key that a list brings again keeps lane and place", "keys_move_up_and_keep_their_place"),
    (
        "asked for in work, a key comes back in the most urgent lane asked for",
        "a_key_requested_during_work_returns_in_its_most_urgent_lane",
    ),
    ("asked for again in its lane, a key keeps its place", "keys_move_up_and_keep_their_place"),
    ("first come, first served within a lane and, in the slow one, a rank", "keys_move_up_and_keep_their_place"),
    ("live changes go before all that need not be next by share or age", "live_changes_go_first"),
    ("while slow keys wait, of so many turns one is theirs", "the_slow_lane_has_its_share"),
    ("the head of the slow lane that is too old goes next, every so many turns", "no_slow_key_starves"),
    ("nobody waits while a key does", "the_queue_follows_its_model"),
    (
        "a live change waits for one slow turn, however many slow keys are how old",
        "a_live_change_waits_for_one_slow_turn",
    ),
    ("the order in which work ends changes nothing about what comes", "the_order_of_completions_does_not_matter"),
    ("the end of work that nobody does is nothing", "the_queue_follows_its_model"),
    ("no call is lost: not with many workers, not with one that goes away", "every_worker_gets_a_key"),
    ("a worker that ends in any way gives back its key", "a_panicking_worker_returns_its_key"),
    ("asking for what waits already costs nothing", "a_repeated_add_costs_nothing"),
    ("a delay is kept, the earliest counts, and a key asked for meanwhile comes twice", "delays"),
    ("a delayed key comes into the lane it was given, in the order of the times", "delays"),
    (
        "a key that fails waits longer each time, within bounds, until it is forgotten",
        "back_off_grows_with_each_failure",
    ),
    ("what failed comes back in the slow lane", "failed_keys_are_retried_in_the_slow_lane"),
    (
        "a queue that ends takes nothing, gives what waits, and then tells every worker",
        "a_queue_that_shuts_down_hands_out_its_waiting_keys",
    ),
    ("draining waits for what waits and what is in work, or for a second end", "draining_waits_for_the_last_worker"),
    ("to end twice is to end once", "a_queue_that_shuts_down_hands_out_its_waiting_keys"),
    ("the depths are those of the lanes", "the_metrics_follow_the_queue"),
    ("durations are counted once for each key", "the_metrics_follow_the_queue"),
    ("a storm's memory is given back", "a_drained_queue_returns_its_memory"),
    ("a clock that jumps brings each delayed key once", "delays"),
    ("the same calls give the same keys", "equal_calls_give_equal_keys"),
    ("in one lane it is client-go's queue", "one_lane_is_the_queue_of_client_go"),
    ("listed, then deleted while it waits: one delivery, in the fast lane", "keys_move_up_and_keep_their_place"),
];

#[test]
fn every_property_has_a_test() {
    let files = [include_str!("traces.rs"), include_str!("lanes.rs"), include_str!("delays.rs")];
    let text = files.join("") + include_str!("counts.rs") + include_str!("workers.rs");
    for (number, (promise, test)) in (1..).zip(PROPERTIES) {
        let test = format!("fn {test}(");
        assert!(text.contains(&test), "{number}, {promise}: there is no {test}");
    }
}

#[allow(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
fn start() -> Instant {
    Instant::now()
}

fn queue<K>() -> Queue<K> {
    Queue::default()
}
