//! Reads files that a user names, whatever is at their path: a cloned repository can have a link to a device, and a
//! pipe has no end.

use std::fs::{self, FileType, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Reads a regular file, after links, of at most `bytes_max` bytes. Opens nothing that would make it wait, and does not
/// rely on the length that the file claims to have.
///
/// # Errors
/// Returns the reason in one line, without the path and without any bytes of the file.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    // To open a device may have an effect; so it is looked at first, and again once it is open.
    check(fs::metadata(path).map_err(|why| why.to_string())?.file_type())?;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path).map_err(|why| why.to_string())?;
    check(file.metadata().map_err(|why| why.to_string())?.file_type())?;
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(|why| why.to_string())?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= bytes_max) {
        return Ok(bytes);
    }
    Err(format!("is larger than {bytes_max} bytes"))
}

/// The same for text.
///
/// # Errors
/// As above, and for bytes that are not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String, String> {
    String::from_utf8(read(path, bytes_max)?).map_err(|_| "is not UTF-8".to_owned())
}

fn check(found: FileType) -> Result<(), String> {
    if found.is_file() {
        return Ok(());
    }
    let what = if found.is_dir() {
        "a folder"
    } else if found.is_fifo() {
        "a pipe"
    } else if found.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(format!("is {what}, and not a regular file"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_regular_files_are_read_up_to_their_limit() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").unwrap();
        fs::write(at("long"), "texts").unwrap();
        fs::write(at("bytes"), b"\xff").unwrap();
        fs::create_dir(at("folder")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink(at("pipe"), at("link to a pipe")).unwrap();
        for (name, expected) in [
            ("file", Ok("text")),
            ("link", Ok("text")),
            ("long", Err("is larger than 4 bytes")),
            ("bytes", Err("is not UTF-8")),
            ("folder", Err("is a folder, and not a regular file")),
            ("pipe", Err("is a pipe, and not a regular file")),
            ("link to a pipe", Err("is a pipe, and not a regular file")),
            ("socket", Err("is a socket, and not a regular file")),
            ("zero", Err("is a device, and not a regular file")),
            ("nothing", Err("No such file or directory (os error 2)")),
        ] {
            let read = read_text(&at(name), 4);
            assert_eq!(read.as_deref().map_err(String::as_str), expected, "{name}");
        }
        // Its length is 0, and it has text.
        assert!(!read("/proc/self/status".as_ref(), 1 << 20).unwrap().is_empty());
    }
}
