//! Attack clients and hostile endpoints against the real binary: each finding of a review as a test of the rule that
//! defends against it, in both drivers, with an honest client of another tenant beside it.
//!
//! Tenant `a` is hostile: its endpoint sends the bytes of a script. Tenants `b` and `c` are honest, and their endpoints
//! name themselves in every answer. All of it is on loopback and bounded in time and in bytes.
//!
//! `HOSTILE_MINUTES=30 cargo test --release -p tidegate-tests --test hostile -- --ignored --nocapture --test-threads 1`
//! plays all attacks at once for that long, and measures the honest clients under each of them alone.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

mod attack;
mod bodiless;
mod codings;
mod descriptors;
mod edge;
mod endpoint;
mod framing;
mod front;
mod heads;
mod health;
mod honest;
mod latency;
mod message_ends;
mod mixed;
mod places;
mod pooling;
mod raw;
mod resets;
mod streams;
mod targets;
mod written;

/// Makes two tests of each rule: one with the native driver beside the Pingora driver, one with the Pingora driver
/// alone.
macro_rules! in_both_drivers {
    ($($module:ident::$rule:ident),* $(,)?) => {
        mod native_and_pingora {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $rule() {
                crate::$module::$rule(crate::edge::Driver::Both).await;
            })*
        }

        mod pingora_alone {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $rule() {
                crate::$module::$rule(crate::edge::Driver::Pingora).await;
            })*
        }
    };
}

in_both_drivers![
    codings::an_unknown_coding_is_502_and_nothing_follows,
    pooling::no_bytes_of_a_reach_b_through_nginx,
    pooling::no_bytes_of_a_reach_b_through_haproxy,
    heads::many_lines_and_connection_words_are_502_while_others_are_served,
    heads::more_than_32_connection_names_are_502,
    heads::many_repetitions_of_a_name_cost_little,
    heads::an_endless_head_is_502,
    heads::empty_lines_before_a_status_line_are_502,
    heads::the_worst_heads_leave_no_memory_behind,
    descriptors::endless_posts_leave_descriptors_for_others,
    descriptors::slow_endpoints_leave_descriptors_for_others,
    descriptors::many_addresses_leave_descriptors_for_the_process,
    places::one_silent_address_does_not_keep_others_out,
    places::the_connection_idle_for_longest_gives_way,
    resets::resets_end_the_connection_with_enhance_your_calm,
    framing::bodiless_responses_are_sent_without_framing,
    framing::doubtful_lengths_and_codings_are_502,
    framing::the_status_line_says_http_1_1,
    targets::ambiguous_targets_are_400,
    targets::long_content_lengths_are_400,
    bodiless::body_bytes_after_a_bodiless_response_reach_no_other_client,
    message_ends::no_end_of_a_body_puts_the_connection_of_an_endpoint_out_of_step,
    message_ends::no_end_of_a_body_puts_the_connection_of_nginx_out_of_step,
    written::c1_controls_are_escaped_in_the_access_log,
    written::commands_with_an_origin_are_refused,
];
