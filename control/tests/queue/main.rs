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
    ("a key is in at most one of the two lanes, once", "the_queue_follows_its_model"),
    ("at most one worker has a key at a time", "the_queue_follows_its_model"),
    ("the waiting keys are those that were added and are not being worked on", "the_queue_follows_its_model"),
    ("several additions before a key is taken give one delivery, and one after it gives another", "no_update_is_lost"),
    ("only added keys are delivered", "no_update_is_lost"),
    ("a slow key that is added as urgent moves to the end of the fast lane", "keys_move_up_and_keep_their_place"),
    ("a fast key that a list adds again keeps its lane and its position", "keys_move_up_and_keep_their_place"),
    (
        "a key that is added while it is worked on returns in the most urgent of the lanes that it was added to",
        "a_key_requested_during_work_returns_in_its_most_urgent_lane",
    ),
    ("a key that is added to its own lane again keeps its position", "keys_move_up_and_keep_their_place"),
    (
        "within a lane and a rank, keys are delivered in the order of their addition",
        "keys_move_up_and_keep_their_place",
    ),
    (
        "live changes are delivered before slow keys that are due neither by their share nor by their age",
        "live_changes_go_first",
    ),
    ("while slow keys wait, they get one turn in a fixed number", "the_slow_lane_has_its_share"),
    (
        "a slow key that has waited too long is delivered next, at most once in a fixed number of turns",
        "no_slow_key_starves",
    ),
    ("no worker waits while a key does", "the_queue_follows_its_model"),
    (
        "a live change waits for at most one slow turn, whatever the number and the age of the slow keys",
        "a_live_change_waits_for_one_slow_turn",
    ),
    ("the order of completions does not change the deliveries", "the_order_of_completions_does_not_matter"),
    ("completing work that no worker has does nothing", "the_queue_follows_its_model"),
    ("no addition is lost, with any number of workers, of which one may stop", "every_worker_gets_a_key"),
    ("a worker returns its key in whichever way it ends", "a_panicking_worker_returns_its_key"),
    ("adding a key that already waits costs nothing", "a_repeated_add_costs_nothing"),
    ("a delay is kept, the earliest of several counts, and a key that is added meanwhile is delivered twice", "delays"),
    ("delayed keys enter their lanes in the order of their times", "delays"),
    (
        "a key that fails waits longer each time, within bounds, until it is forgotten",
        "back_off_grows_with_each_failure",
    ),
    ("a failed key is retried in the slow lane", "failed_keys_are_retried_in_the_slow_lane"),
    (
        "a queue that shuts down accepts nothing, delivers the waiting keys, and then ends every worker",
        "a_queue_that_shuts_down_hands_out_its_waiting_keys",
    ),
    (
        "draining waits for the waiting keys and those being worked on, or until the queue is shut down again",
        "draining_waits_for_the_last_worker",
    ),
    ("shutting down twice is the same as once", "a_queue_that_shuts_down_hands_out_its_waiting_keys"),
    ("the depths in the metrics are those of the lanes", "the_metrics_follow_the_queue"),
    ("durations are counted once for each key", "the_metrics_follow_the_queue"),
    ("a drained queue returns its memory", "a_drained_queue_returns_its_memory"),
    ("a clock that jumps delivers each delayed key once", "delays"),
    ("equal calls give equal keys", "equal_calls_give_equal_keys"),
    ("with one lane the queue behaves as client-go's", "one_lane_is_the_queue_of_client_go"),
    (
        "a key that is listed, and deleted while it waits, is delivered once, in the fast lane",
        "keys_move_up_and_keep_their_place",
    ),
];

#[test]
fn every_property_has_a_test() {
    let files = [include_str!("traces.rs"), include_str!("lanes.rs"), include_str!("delays.rs")];
    let text = files.join("") + include_str!("counts.rs") + include_str!("workers.rs");
    for (number, (property, test)) in (1..).zip(PROPERTIES) {
        let test = format!("fn {test}(");
        assert!(text.contains(&test), "{number}, {property}: there is no {test}");
    }
}

#[allow(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
fn start() -> Instant {
    Instant::now()
}

fn queue<K>() -> Queue<K> {
    Queue::default()
}
