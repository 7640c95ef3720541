//! Serves an empty API on a loopback port and writes its kubeconfig to the file named as the first argument.

use tidegate_lite::{Door, Lite};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "kubeconfig".to_owned());
    let door = Door::bind(Lite::new(), ([127, 0, 0, 1], 0).into()).await?;
    std::fs::write(&path, door.kubeconfig())?;
    println!("export KUBECONFIG={path} # {}", door.address());
    door.serve(async { drop(tokio::signal::ctrl_c().await) }).await;
    Ok(())
}
