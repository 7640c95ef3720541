//! The binary under test.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The path of `tidegate`, built in the profile of the tests and up to date.
#[must_use]
pub fn binary() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            // Test programs are in target/PROFILE/deps.
            let folder = std::env::current_exe().expect("the path of this program");
            let profile = folder.parent().and_then(std::path::Path::parent).expect("a target folder").to_owned();
            let release = profile.file_name().is_some_and(|name| name == "release");
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--locked", "--quiet", "-p", "tidegate-app", "--bin", "tidegate"]);
            build.arg("--target-dir").arg(profile.parent().expect("a target folder"));
            if release {
                build.arg("--release");
            }
            // The variables that cargo sets for this test's package must not reach other build scripts: they would run
            // again.
            for (name, _) in std::env::vars_os() {
                if name
                    .to_str()
                    .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
                {
                    build.env_remove(name);
                }
            }
            assert!(build.status().expect("cargo").success(), "the binary does not build");
            profile.join("tidegate")
        })
        .clone()
}
