//! The folder of the cache, with mode 0700, and its file, with mode 0600. A folder or file of another user is refused,
//! not changed.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The name of our folder inside the operator's folder, which may be a mount point with its own permissions.
const FOLDER: &str = "cluster-cache";
/// The file of the store.
const FILE: &str = "objects.redb";
/// A store that could not be read, kept for analysis. There is at most one.
const UNREADABLE: &str = "objects.redb.unreadable";

/// The path of the store in the operator's folder.
pub(super) fn file_in(folder: &Path) -> PathBuf {
    folder.join(FOLDER).join(FILE)
}

/// Opens the file of the store, and creates it and its folder if they do not exist; `true` if the file is new.
pub(super) fn open(folder: &Path) -> io::Result<(File, bool)> {
    let inner = folder.join(FOLDER);
    DirBuilder::new().recursive(true).mode(0o700).create(&inner)?;
    private(&inner, 0o700)?;
    let path = inner.join(FILE);
    if let Ok(found) = path.symlink_metadata()
        && !found.is_file()
    {
        return Err(io::Error::other(format!("{} is not a file", path.display())));
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let opened = match options.open(&path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => (options.create_new(true).open(&path)?, true),
        opened => (opened?, false),
    };
    private(&path, 0o600)?;
    Ok(opened)
}

/// Renames an unreadable store, so that a new one can take its place.
pub(super) fn set_aside(folder: &Path) -> io::Result<PathBuf> {
    let aside = folder.join(FOLDER).join(UNREADABLE);
    std::fs::rename(file_in(folder), &aside)?;
    Ok(aside)
}

/// Removes the permissions of other users from our folder or file.
fn private(path: &Path, mode: u32) -> io::Result<()> {
    let found = path.symlink_metadata()?;
    let ours = rustix::process::geteuid().as_raw();
    if found.is_symlink() || found.uid() != ours {
        let why = format!("{} is a link or belongs to user {}, not to {ours}", path.display(), found.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    if found.mode() & 0o777 != mode {
        std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    Ok(())
}
