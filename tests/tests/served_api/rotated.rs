//! The token and the certificate of a served API, replaced while it runs.

use super::*;

/// The status for a request with a token.
async fn status(at: SocketAddr, token: &str) -> Option<String> {
    let mut stream = TcpStream::connect(at).await.ok()?;
    let request =
        format!("GET /api HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer.split(' ').nth(1)?.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_replaced_while_the_api_serves() {
    let dev = Dev::start(&[("shop.yaml", SHOP)]).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let put = |token: &str| {
        std::fs::write(folder.path().join("new"), token).unwrap();
        std::fs::rename(folder.path().join("new"), &path).unwrap();
    };
    put("the-first-token-of-all\n");
    let file = path.to_str().unwrap();
    let arguments = ["--https", "127.0.0.1:0", "--serve-api", "127.0.0.1:0", "--serve-token-file", file];
    let run = Run::start(&dev.kubeconfig, &arguments).await;
    run.ready().await;
    let at: SocketAddr = run.api.clone().unwrap().parse().unwrap();
    assert_eq!(status(at, "the-first-token-of-all").await.as_deref(), Some("200"));
    put("the-second-token-of-all\n");
    eventually("the second token", || async {
        let status = status(at, "the-second-token-of-all").await;
        if status.as_deref() == Some("200") { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    assert_eq!(status(at, "the-first-token-of-all").await.as_deref(), Some("401"));
}
