//! A port that another process has: the status of its listener says so, other listeners serve, and the port is taken as
//! soon as it is free.

use std::net::TcpListener;

use super::Bench;

const ADD: &str = r#"[{"op":"add","path":"/spec/listeners/-","value":{"name":"late","port":8099,"protocol":"HTTP"}}]"#;

const OF_LATE: &str = "{.status.listeners[?(@.name=='late')].conditions[?(@.type=='Accepted')].reason}";

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_whose_port_is_taken_says_so_until_it_is_free() {
    let Some(bench) = Bench::start(17).await else { return };
    bench.answered(bench.door(0, 8080), "shop.localhost", "/", 200).await;
    let late = bench.door(0, 8099);
    let other = TcpListener::bind(late).unwrap();
    bench.kubectl.run(&["patch", "-n", "shop", "gateway/edge", "--type=json", "-p", ADD]).await;
    bench.said("gateway/edge", OF_LATE, "PortUnavailable").await;
    bench.answered(bench.door(0, 8080), "shop.localhost", "/", 200).await;
    drop(other);
    bench.answered(late, "shop.localhost", "/", 200).await;
    bench.said("gateway/edge", OF_LATE, "Accepted").await;
}
