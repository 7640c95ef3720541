//! The subject of a count: a data plane alone in a process of this binary, so that the counting allocator counts
//! nothing else, and callgrind and strace see nothing else. It is asked for its count over standard input, and ends
//! with it.

mod bare;
pub(crate) mod edge;
mod running;

use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::allocation;
use crate::identity::Identity;

pub(crate) use running::Running;

/// The data plane.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// The smallest proxy that can be built with Pingora.
    Pingora(bare::Args),
    /// Tidegate's data plane with a fixed snapshot.
    Edge(edge::Args),
}

/// Runs it until standard input ends.
///
/// # Errors
/// When it cannot be started.
pub fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Pingora(args) => bare::run(args),
        Command::Edge(args) => edge::run(args),
    }
}

/// The paths of a certificate and its key, in files of a folder.
#[derive(clap::Args, Debug)]
struct IdentityFiles {
    /// The folder with `tls.crt` and `tls.key`.
    #[arg(long)]
    identity: PathBuf,
}

impl IdentityFiles {
    fn paths(&self) -> (PathBuf, PathBuf) {
        (self.identity.join("tls.crt"), self.identity.join("tls.key"))
    }

    fn read(&self) -> std::io::Result<Identity> {
        let (certificate, key) = self.paths();
        Ok(Identity { certificate: std::fs::read_to_string(certificate)?, key: std::fs::read_to_string(key)? })
    }
}

/// Writes the files that `IdentityFiles` reads.
pub(crate) fn write_identity(folder: &Path) -> anyhow::Result<()> {
    let identity = Identity::new()?;
    std::fs::write(folder.join("tls.crt"), identity.certificate)?;
    std::fs::write(folder.join("tls.key"), identity.key)?;
    Ok(())
}

/// Prints its addresses and then, for every line of input, the allocations since the start.
fn tell(plain: SocketAddr, secure: SocketAddr) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&(plain, secure))?)?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        line?;
        writeln!(out, "{}", serde_json::to_string(&allocation::total())?)?;
        out.flush()?;
    }
    Ok(())
}
