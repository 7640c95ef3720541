//! The bytes for an endpoint. Sent bytes are kept while there is room, so that a small request can be sent again with
//! its body; those of a large request are discarded.

use crate::buffers::Buffer;

/// The bytes of a request in transit.
#[derive(Debug, Default)]
pub(super) struct Upload {
    bytes: Buffer,
    /// The number of bytes sent.
    sent: usize,
    /// Whether earlier bytes were sent and discarded.
    forgets: bool,
}

impl Upload {
    /// Returns `true` if no bytes were ever added.
    pub(super) fn is_new(&self) -> bool {
        self.bytes.is_empty() && !self.forgets
    }

    /// The bytes that are not sent yet.
    pub(super) fn waiting(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// The last `count` bytes that were added.
    pub(super) fn last(&self, count: usize) -> &[u8] {
        self.bytes.get(self.bytes.len().saturating_sub(count)..).unwrap_or_default()
    }

    /// Returns `true` if all bytes were sent.
    pub(super) fn is_sent(&self) -> bool {
        self.sent >= self.bytes.len()
    }

    /// Returns `true` if all bytes that were added are still there.
    pub(super) const fn is_whole(&self) -> bool {
        !self.forgets
    }

    /// The number of bytes of content that may be added. Sent bytes are discarded only when all were sent; before that
    /// the buffer grows.
    pub(super) fn space(&mut self) -> usize {
        if self.bytes.space() == 0 {
            if self.is_sent() {
                self.bytes.clear();
                (self.sent, self.forgets) = (0, true);
            } else {
                self.bytes.grow();
            }
        }
        self.bytes.space()
    }

    /// The buffer to append to.
    pub(super) fn end(&mut self) -> &mut Vec<u8> {
        self.bytes.make_room();
        self.bytes.end()
    }

    /// Records that this number of bytes was sent.
    pub(super) const fn took(&mut self, count: usize) {
        self.sent += count;
    }

    /// Sends no more of it to this endpoint.
    pub(super) fn skip(&mut self) {
        self.sent = self.bytes.len();
    }

    /// Rewinds to the beginning, for another endpoint.
    pub(super) const fn again(&mut self) {
        self.sent = 0;
    }

    /// Discards all bytes and returns the buffer.
    pub(super) fn clear(&mut self) {
        self.bytes.give();
        (self.sent, self.forgets) = (0, false);
    }

    /// The capacity of its buffer.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(upload: &mut Upload, count: usize) {
        upload.end().extend_from_slice(&vec![b'x'; count]);
    }

    #[test]
    fn a_small_upload_can_be_sent_again() {
        let mut upload = Upload::default();
        assert!(upload.is_new() && upload.is_sent() && upload.is_whole());
        upload.end().extend_from_slice(b"head");
        upload.took(3);
        upload.end().extend_from_slice(b"body");
        assert_eq!((upload.waiting(), upload.is_sent(), upload.is_new()), (b"dbody".as_slice(), false, false));
        upload.skip();
        assert_eq!((upload.waiting(), upload.is_sent(), upload.is_whole()), (b"".as_slice(), true, true));
        assert_eq!(upload.space(), Buffer::default().space() - 8);
        upload.again();
        assert_eq!((upload.waiting(), upload.is_new()), (b"headbody".as_slice(), false));
        upload.clear();
        assert!(upload.is_new() && upload.is_sent());
    }

    #[test]
    fn a_large_upload_is_dropped_once_it_is_sent() {
        let mut upload = Upload::default();
        let held = upload.space();
        add(&mut upload, held);
        upload.took(held);
        assert_eq!((upload.space(), upload.is_whole(), upload.is_new()), (held, false, false));
        add(&mut upload, 1);
        upload.again();
        assert_eq!((upload.waiting().len(), upload.is_whole()), (1, false));
        upload.clear();
        assert!(upload.is_new() && upload.is_whole());
    }

    #[test]
    fn an_upload_that_arrives_faster_than_it_is_sent_gets_a_larger_buffer() {
        let mut upload = Upload::default();
        let held = upload.space();
        add(&mut upload, held);
        upload.took(held - 1);
        let more = upload.space();
        assert!(more > held && upload.is_whole());
        add(&mut upload, more);
        assert_eq!((upload.space(), upload.waiting().len(), upload.is_whole()), (0, 1 + more, true));
        upload.took(1 + more);
        assert_eq!((upload.space(), upload.is_whole()), (held + more, false));
    }
}
