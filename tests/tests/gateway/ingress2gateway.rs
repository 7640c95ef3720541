//! The Ingresses of `examples/`, and the output of ingress2gateway
//! (<https://github.com/kubernetes-sigs/ingress2gateway>) for them: both respond to the same requests in the same way.

use std::path::{Path, PathBuf};

use serde_json::json;
use tidegate_tests::skipped;
use tokio::process::Command;

use super::*;

const INGRESSES: [(&str, &str); 2] = [
    ("shop.yaml", include_str!("../../../examples/shop.yaml")),
    ("chat.yaml", include_str!("../../../examples/chat.yaml")),
];

/// The port in place of the tool's port 80, which is privileged.
const PORT: u16 = 8080;

/// The output of the tool for these Ingresses, read from `tidegate dev`; a test compares it with the tool itself.
const CONVERTED: &str = include_str!("ingress2gateway.yaml");

/// A request as seen by a client and an endpoint, without the name of the replica and the port number of the listener.
fn seen(answer: &Answer) -> (u16, String, Vec<String>) {
    let pod = answer.headers.get("x-echo-pod").map_or("", |pod| pod.to_str().unwrap());
    let deployment = pod.rsplitn(3, '-').last().unwrap_or_default().to_owned();
    let varies = |line: &&str| {
        let line = line.to_lowercase();
        ["pod:", "request:", "x-request-id:", "x-forwarded-port:"].iter().any(|name| line.starts_with(name))
    };
    let lines = answer.body.lines().filter(|line| !varies(line)).map(ToOwned::to_owned).collect();
    (answer.status.as_u16(), deployment, lines)
}

const REQUESTS: [(&str, &str, &str); 18] = [
    ("GET", "shop.localhost", "/"),
    ("GET", "shop.localhost", "/cart"),
    ("POST", "shop.localhost", "/cart/7?a=b&c"),
    ("GET", "shop.localhost", "/cart/"),
    ("GET", "shop.localhost", "/cartoon"),
    ("GET", "shop.localhost", "/CART"),
    ("GET", "shop.localhost", "//cart"),
    ("GET", "shop.localhost", "/x/../cart"),
    ("GET", "shop.localhost", "/robots.txt"),
    ("GET", "shop.localhost", "/robots.txt/x"),
    ("DELETE", "SHOP.localhost:80", "/%63art"),
    ("GET", "chat.localhost", "/ws/1"),
    ("GET", "chat.localhost", "/"),
    ("GET", "chat.localhost", "/wsx"),
    ("GET", "one.rooms.localhost", "/"),
    ("PUT", "one.rooms.localhost", "/any"),
    ("GET", "rooms.localhost", "/"),
    ("GET", "other.localhost", "/"),
];

async fn ask(door: SocketAddr, (method, host, path): (&str, &str, &str)) -> Result<Answer, String> {
    let asked = http::Request::builder().method(method).uri(path).header("host", host);
    request(door, asked.body(Empty::new()).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn ingresses_and_their_ingress2gateway_output_answer_alike() {
    let id = std::process::id().to_le_bytes();
    let first = Ipv4Addr::new(127, 64 + id[1] % 64, id[0], 8 * 15 + 1);
    let addresses = format!("{first}-{}", Ipv4Addr::from_bits(first.to_bits() + 1));
    let class =
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "tidegate"},
                       "spec": {"controllerName": "tidegate.io/gateway"}})
        .to_string();
    let made = CONVERTED.replace("port: 80\n    protocol", &format!("port: {PORT}\n    protocol"));
    let files: Vec<(&str, &str)> =
        INGRESSES.into_iter().chain([("converted.yaml", &*made), ("class.yaml", &*class)]).collect();
    let dev = Dev::with(&files, &["--gateway-addresses", &addresses]).await;
    // One Gateway in each namespace: the assignment of the two addresses follows from their age.
    let doors = [0, 1].map(|nth| SocketAddr::from((Ipv4Addr::from_bits(first.to_bits() + nth), PORT)));
    let serves = |host: &'static str| async move {
        eventually(&format!("a Gateway serves {host}"), || async move {
            for door in doors {
                if get(door, host, "/ws").await.is_ok_and(|answer| answer.status == 200) {
                    return Ok(door);
                }
            }
            Err("none does".to_owned())
        })
        .await
    };
    let (shop, chat) = (serves("shop.localhost").await, serves("chat.localhost").await);
    for asked in REQUESTS {
        let by_ingress = seen(&ask(dev.http, asked).await.unwrap());
        let door = if asked.1.contains("chat") || asked.1.contains("rooms") { chat } else { shop };
        let by_gateway = seen(&ask(door, asked).await.unwrap());
        assert_eq!(by_ingress, by_gateway, "{asked:?}");
        assert!(matches!(by_ingress.0, 200 | 404), "{asked:?}: {by_ingress:?}");
    }
    // The one difference is that of the two APIs: a star of an Ingress matches one label, that of a route one or more.
    let deeper = ("GET", "a.one.rooms.localhost", "/");
    assert_eq!(ask(dev.http, deeper).await.unwrap().status, 404);
    assert_eq!(ask(chat, deeper).await.unwrap().status, 200);
}

/// The binary of the tool. `None`, with one printed line, if it is not built.
fn tool() -> Option<PathBuf> {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/build");
    let built = std::process::Command::new(build).args(["ingress2gateway", "--path"]).output().unwrap();
    if !built.status.success() {
        skipped("ingress2gateway", "ingress2gateway is not built (tests/tools/build ingress2gateway)");
        return None;
    }
    Some(PathBuf::from(String::from_utf8(built.stdout).unwrap().trim()))
}

/// `UPDATE_GOLDEN=1` writes the output of the tool.
#[tokio::test(flavor = "multi_thread")]
async fn the_stored_output_is_that_of_the_tool() {
    let Some(tool) = tool() else { return };
    let dev = Dev::with(&INGRESSES, &[]).await;
    let mut command = Command::new(tool);
    command.args(["print", "--all-namespaces", "--no-color", "--providers", "ingress-nginx"]);
    command.args(["--ingress-nginx-ingress-class", "tidegate", "--kubeconfig"]).arg(&dev.kubeconfig);
    let (code, out, err) = Kubectl::ended(command, "").await;
    assert_eq!(code, Some(0), "{out}{err}");
    // The tool writes the objects in the random order of a map.
    let mut documents: Vec<&str> = out.split("---\n").map(str::trim_end).collect();
    documents.sort_unstable();
    let written = format!("{}\n", documents.join("\n---\n"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/ingress2gateway.yaml");
        std::fs::write(file, &written).unwrap();
    } else {
        assert_eq!(written, CONVERTED);
    }
}
