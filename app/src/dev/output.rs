//! Copies the output of a process, line by line, into the log of its container.

use tidegate_lite::LogWriter;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The maximum length of a buffered line in bytes; longer lines are split.
const LINE_MAX_BYTES: usize = 16 * 1024;
/// The size of one read.
const READ_BYTES: usize = 8 * 1024;

/// Copies until the process closes its end. A read error ends it too.
pub(super) async fn copy(mut from: impl AsyncRead + Unpin, log: LogWriter) {
    let (mut buffer, mut chunk) = (Vec::new(), vec![0; READ_BYTES]);
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        buffer.extend_from_slice(chunk.get(..read).unwrap_or_default());
        lines(&mut buffer, |line| log.line(line));
    }
    if !buffer.is_empty() {
        log.line(&buffer);
    }
}

/// Takes the complete lines from the buffer.
fn lines(buffer: &mut Vec<u8>, mut each: impl FnMut(&[u8])) {
    let complete = buffer.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    for line in buffer.drain(..complete).as_slice().split_inclusive(|byte| *byte == b'\n') {
        each(line.strip_suffix(b"\n").unwrap_or(line));
    }
    if buffer.len() >= LINE_MAX_BYTES {
        each(buffer);
        buffer.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_lines_are_taken() {
        let (mut buffer, mut taken) = (Vec::new(), Vec::new());
        for chunk in ["a", "b\n\nc", "\nd"] {
            buffer.extend_from_slice(chunk.as_bytes());
            lines(&mut buffer, |line| taken.push(String::from_utf8(line.to_vec()).unwrap()));
        }
        assert_eq!((taken, buffer), (vec!["ab".to_owned(), String::new(), "c".to_owned()], b"d".to_vec()));
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let (mut buffer, mut taken) = (vec![b'x'; LINE_MAX_BYTES], 0);
        lines(&mut buffer, |line| taken += line.len());
        assert_eq!((taken, buffer.len()), (LINE_MAX_BYTES, 0));
    }
}
