//! Serves an empty API on a loopback port and writes its kubeconfig to the file named as the first argument.

use tidegate_lite::{Lite, Server};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "kubeconfig".to_owned());
    let server = Server::bind(Lite::new(), ([127, 0, 0, 1], 0).into()).await?;
    std::fs::write(&path, server.kubeconfig())?;
    println!("export KUBECONFIG={path} # {}", server.address());
    server.serve(async { drop(tokio::signal::ctrl_c().await) }).await;
    Ok(())
}
