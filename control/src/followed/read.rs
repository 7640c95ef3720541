//! Reads files within limits, and remembers what was read.

use std::fmt;
use std::path::Path;

use ring::digest::{Context, SHA256};

use crate::regular_file;

/// The maximum size of a followed file, in bytes: a bundle of every public authority takes a quarter of it.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The byte order mark of UTF-8, with which some editors begin a file.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The files that make up one value, while they are read.
pub struct Reads {
    seen: Context,
    files: usize,
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reads")
    }
}

impl Reads {
    pub(super) fn begin() -> Self {
        Self { seen: Context::new(&SHA256), files: 0 }
    }

    /// The number of files that were read.
    pub(super) fn files(&self) -> usize {
        self.files
    }

    /// The digest of all that was read.
    pub(super) fn finish(self) -> Vec<u8> {
        self.seen.finish().as_ref().to_vec()
    }

    /// The content of a file, without a byte order mark.
    ///
    /// # Errors
    /// Returns the reason, without any bytes of the file: it cannot be read, is not a regular file (after links are
    /// followed), or is larger than a mebibyte.
    pub fn bytes(&mut self, path: &Path) -> Result<Vec<u8>, String> {
        let read = regular_file::read(path, FILE_BYTES_MAX).map_err(|why| format!("{}: {why}", path.display()))?;
        self.files += 1;
        // With its length, so that no bytes can move from one file to the next unnoticed.
        self.seen.update(&read.len().to_be_bytes());
        self.seen.update(&read);
        Ok(read.strip_prefix(BYTE_ORDER_MARK).map(<[u8]>::to_vec).unwrap_or(read))
    }

    /// The one value in a file, as [`single_value`] reads it.
    ///
    /// # Errors
    /// Returns the reason, without any bytes of the file: it cannot be read, is empty, or is not text.
    pub fn value(&mut self, path: &Path) -> Result<String, String> {
        let bytes = self.bytes(path)?;
        let value = single_value(&bytes).ok_or_else(|| format!("{}: holds no text", path.display()))?;
        Ok(value.to_owned())
    }
}

/// The text of a file that holds one value, such as a token, a password or a name: without a byte order mark, and
/// without white space around it, which most tools leave at the end of a file. `None` if nothing is left, or it is not
/// UTF-8.
#[must_use]
pub fn single_value(bytes: &[u8]) -> Option<&str> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    Some(std::str::from_utf8(bytes).ok()?.trim()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], want: Option<&str>) {
        assert_eq!(single_value(bytes), want, "{bytes:?}");
    }

    #[test]
    fn a_value_has_no_white_space_around_it() {
        for given in ["x", "x\n", "x\r\n", " \tx \n\n", "\u{feff}x\n", "x\u{a0}", "\n\nx"] {
            check(given.as_bytes(), Some("x"));
        }
        check(b"x y\n", Some("x y"));
        for given in ["", "\n", " \r\n\t", "\u{feff}", "\u{feff}\n"] {
            check(given.as_bytes(), None);
        }
        check(b"\xff\xfe", None);
    }

    #[test]
    fn a_file_is_read_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let large = folder.path().join("large");
        let limit = usize::try_from(FILE_BYTES_MAX).unwrap();
        std::fs::write(&large, vec![b'a'; limit + 1]).unwrap();
        assert!(Reads::begin().bytes(&large).unwrap_err().ends_with("large: is larger than 1048576 bytes"));
        std::fs::write(&large, vec![b'a'; limit]).unwrap();
        assert_eq!(Reads::begin().bytes(&large).unwrap().len(), limit);
    }
}
