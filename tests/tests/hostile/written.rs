//! The access log, and the commands of the debug address.

use tidegate_tests::eventually;

use crate::edge::{Driver, Edge};
use crate::endpoint::Endpoint;
use crate::raw::{ANSWER_MAX, Client};

/// Terminals interpret U+009B as the start of a command, like `ESC [`; U+202E reverses the direction of the text after
/// it.
pub(crate) async fn c1_controls_are_escaped_in_the_access_log(driver: Driver) {
    let b = Endpoint::honest("b").await;
    let edge = Edge::start(driver, &[("b", &b)]).await;
    let mut client = Client::connect(edge.http()).await.unwrap();
    let request =
        b"GET /logged HTTP/1.1\r\nHost: b.test\r\nReferer: \xc2\x9b31m\r\nUser-Agent: \xc2\x80\xe2\x80\xae\r\n\r\n";
    assert_eq!(client.ask(request).await.unwrap().text(), "b /logged");
    let line = eventually("the request is logged", || async {
        let log = edge.access_log();
        let line = log.split(|byte| *byte == b'\n').find(|line| line.windows(9).any(|bytes| bytes == b"\"/logged\""));
        line.map(<[u8]>::to_vec).ok_or_else(|| log.escape_ascii().to_string())
    })
    .await;
    assert!(line.is_ascii(), "raw controls: {}", line.escape_ascii());
    let value: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
    assert_eq!((value["referer"].as_str(), value["user_agent"].as_str()), (Some("\u{9b}31m"), Some("\u{80}\u{202e}")));
}

/// A browser sends the origin of a web page; an operator's tool sends none.
pub(crate) async fn commands_with_an_origin_are_refused(driver: Driver) {
    let b = Endpoint::honest("b").await;
    let edge = Edge::start(driver, &[("b", &b)]).await;
    let debug = edge.debug();
    let request = |origin: &str| {
        format!(
            "POST /debug/freeze HTTP/1.1\r\nHost: {debug}\r\n{origin}Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        )
    };
    for origin in ["http://evil.test", "null", "http://localhost"] {
        let mut client = Client::connect(debug).await.unwrap();
        let response = client.ask(request(&format!("Origin: {origin}\r\n"))).await.unwrap();
        assert_eq!(response.status(), 403, "{origin}: {}{}", response.head, response.text());
        let metrics = edge.admin("/metrics", ANSWER_MAX).await.unwrap().body;
        assert!(metrics.contains("\ntidegate_held_generation 0\n"), "{origin}: a hold in {metrics}");
    }
    let mut client = Client::connect(debug).await.unwrap();
    let response = client.ask(request("")).await.unwrap();
    assert_eq!(response.status(), 200, "without an origin: {}{}", response.head, response.text());
}
