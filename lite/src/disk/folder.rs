//! The folder: mode 0700, and the file in it 0600. A file of another user is refused rather than changed.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// The subfolder within the folder that the user names, which may have other files and permissions.
const FOLDER: &str = "lite";
const FILE: &str = "objects.redb";

/// Opens the file of the objects, and creates it and its folder if they do not exist; `true` if the file is new.
pub(super) fn open(folder: &Path) -> io::Result<(File, bool)> {
    let inner = folder.join(FOLDER);
    DirBuilder::new().recursive(true).mode(0o700).create(&inner).map_err(|why| about(&inner, &why))?;
    private(&inner, 0o700)?;
    let path = inner.join(FILE);
    if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other(format!("{} is not a file", path.display())));
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let opened = match options.open(&path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            options.create_new(true).open(&path).map(|file| (file, true))
        }
        opened => opened.map(|file| (file, false)),
    };
    let opened = opened.map_err(|why| about(&path, &why))?;
    private(&path, 0o600)?;
    Ok(opened)
}

/// Removes the permissions of others.
fn private(path: &Path, mode: u32) -> io::Result<()> {
    let found = path.symlink_metadata().map_err(|why| about(path, &why))?;
    let ours = rustix::process::geteuid().as_raw();
    if found.is_symlink() || found.uid() != ours {
        let why = format!("{} is a link or belongs to user {}, not to {ours}", path.display(), found.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    if found.mode() & 0o777 != mode {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|why| about(path, &why))?;
    }
    Ok(())
}

fn about(path: &Path, why: &io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("{}: {why}", path.display()))
}
