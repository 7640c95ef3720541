//! `tidegate run` on a real control plane, with exactly the rights of `deploy/`: real Deployments, EndpointSlices and
//! rollouts, and the faults of a cluster.
//!
//! One cluster and one Tidegate serve all cases, one after the other. A client requests another host all the while, and
//! no case may cost it a request. If the cluster cannot run, the cases are skipped by name.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

mod definitions;
mod deis;
mod events;
mod faults;
mod lite;
mod objects;
mod outage;
mod pods;
mod reviews;
mod rights;
mod served;
mod size;
mod stage;
mod typed;

use std::process::ExitCode;

use libtest_mimic::Arguments;
use tidegate_tests::cluster::{Entered, Network, enter};
use tidegate_tests::skipped;

use stage::{Case, cases};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let all: &[Case] = &cases![
        pods::a_deployment_is_routed,
        pods::a_rolling_update_fails_no_request,
        pods::to_zero_and_back,
        pods::a_deleted_pod_ends_its_requests_first,
        objects::a_target_port_changes,
        objects::a_service_port_is_renumbered,
        objects::an_ingress_is_edited,
        objects::an_ingress_tells_where_it_is,
        objects::a_class_changes,
        objects::a_certificate_is_rotated,
        objects::a_namespace_goes,
        events::an_owner_gets_one_event,
        events::an_event_about_a_class_goes_to_default,
        definitions::a_kind_comes_and_goes,
        faults::its_token_is_replaced,
        faults::the_api_server_crashes,
        faults::missed_changes_are_listed,
        outage::an_edge_goes_on_alone,
        served::kubectl_watches_on_over_a_compaction_and_a_crash,
        lite::answers_equal_those_of_a_real_api_server,
        typed::printed_objects_equal_those_of_a_real_api_server,
        rights::a_role_in_a_namespace_is_enough_for_that,
        rights::secrets_by_name_need_no_other_right,
        deis::its_roles_are_enough_for_applications,
        reviews::accounts_send_what_their_roles_allow,
        rights::the_role_matches_the_requests,
    ];
    let on_demand: &[Case] = &cases![size::it_starts_with_many_routes];
    if arguments.list {
        return stage::left_out(&arguments, all);
    }
    match enter(Network::Local) {
        Entered::Inside { control_plane, folder } => stage::run(&arguments, (all, on_demand), (control_plane, folder)),
        Entered::Ended(code) => ExitCode::from(code),
        Entered::Not(lack) => {
            skipped("cluster", format_args!("the cases on a real control plane, because {lack}"));
            stage::left_out(&arguments, all)
        }
    }
}
