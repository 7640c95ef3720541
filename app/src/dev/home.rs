//! The private folder of one run. It contains the kubeconfig with its token and is removed at the end.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;

use tempfile::TempDir;

/// Removes its folder when dropped.
#[derive(Debug)]
pub(super) struct Home {
    folder: TempDir,
}

impl Home {
    /// Creates the folder, which only its user can enter, with the kubeconfig, which only its user can read.
    pub(super) fn make(kubeconfig: &str) -> io::Result<Self> {
        let own = Permissions::from_mode(0o700);
        let home = Self { folder: tempfile::Builder::new().prefix("tidegate-dev-").permissions(own).tempdir()? };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(home.kubeconfig())?;
        file.write_all(kubeconfig.as_bytes())?;
        Ok(home)
    }

    /// The path of the kubeconfig.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_private_and_removed_at_the_end() {
        let home = Home::make("token").unwrap();
        let (file, folder) = (home.kubeconfig(), home.folder.path().to_owned());
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(&folder)), (0o600, 0o700));
        drop(home);
        assert!(!folder.exists());
    }
}
