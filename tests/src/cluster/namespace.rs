//! Namespaces for a test program: private addresses for pods, a private place for the files of pods, and an end that
//! nothing started in it survives.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Kubectl;

/// The path of the control plane's binary for the program inside.
const CONTROL_PLANE: &str = "TIDEGATE_TESTS_CONTROL_PLANE";

/// The network of the pods, 10.244.0.0/16.
#[derive(Debug, Clone, Copy)]
pub enum Network {
    /// Every address of it is local, so that a process can bind that of its pod by itself.
    Local,
    /// Pods have network namespaces of their own, which a bridge joins; the node is 10.244.0.1 and Tidegate 10.244.0.2.
    /// All addresses of 10.245.0.0/24 are local, for Gateways.
    Bridged,
}

impl Network {
    /// The bridge of [`Network::Bridged`], as `tests/cluster/network` names it.
    pub const BRIDGE: &str = "pods";

    /// A program in namespaces with this network.
    fn run(self, program: &Path) -> Command {
        let name = match self {
            Self::Local => "local",
            Self::Bridged => "bridged",
        };
        let mut command = Command::new(folder().join("network"));
        command.arg(name).arg(program);
        command
    }
}

/// The result of [`enter`].
#[derive(Debug)]
pub enum Entered {
    /// This program runs inside.
    Inside {
        /// The control plane's binary.
        control_plane: PathBuf,
        /// An empty folder, removed by the program outside when this one has succeeded.
        folder: PathBuf,
    },
    /// The program has run inside; this is its exit code.
    Ended(u8),
    /// The program cannot get inside, for this reason.
    Not(String),
}

/// Runs this program with its arguments once more, inside, or returns that it is inside.
///
/// The program inside is the first process of its namespace, so the kernel kills everything that it has started when it
/// ends, also when it panics. It ends itself when the one outside is gone.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "what a program tells itself goes through the environment")]
pub fn enter(network: Network) -> Entered {
    if let Ok(control_plane) = std::env::var(CONTROL_PLANE) {
        std::thread::spawn(|| {
            // Nothing is ever written to this pipe: it closes when the program outside ends.
            drop(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
            std::process::exit(1);
        });
        return Entered::Inside { control_plane: control_plane.into(), folder: std::env::temp_dir() };
    }
    let tried = found(network).and_then(|control_plane| {
        // The build is here, because it may need a network.
        drop(crate::binary());
        again(&control_plane, network)
    });
    tried.unwrap_or_else(Entered::Not)
}

/// The control plane's binary, if everything that the tests need is present.
fn found(network: Network) -> Result<PathBuf, String> {
    let built = Command::new(folder().join("build")).arg("--path").stderr(Stdio::null()).output();
    let path = built.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let path = path.and_then(|text| String::from_utf8(text).ok());
    let path = path.ok_or("the control plane is not built: run tests/cluster/build")?;
    if !Kubectl::is_there() {
        return Err("there is no kubectl".to_owned());
    }
    let probe = network.run(Path::new("true")).output().map_err(|error| format!("tests/cluster/network: {error}"))?;
    if !probe.status.success() {
        return Err(format!("no namespaces can be made: {}", String::from_utf8_lossy(&probe.stderr).trim()));
    }
    Ok(path.trim().into())
}

/// The folder of the programs that a cluster for tests needs.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster")
}

fn again(control_plane: &Path, network: Network) -> Result<Entered, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut command = network.run(&program);
    command.args(std::env::args_os().skip(1)).env(CONTROL_PLANE, control_plane).env("TMPDIR", folder.path());
    let mut child = command.stdin(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
    // This is held until it has ended: `wait` would close it.
    let outside = child.stdin.take();
    let status = child.wait().map_err(|error| error.to_string())?;
    drop(outside);
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    if code != 0 {
        println!("the logs of the cluster are kept in {}", folder.keep().display());
    }
    Ok(Entered::Ended(code))
}
