//! What goes up to an endpoint. What was sent stays where it is for as long as there is room behind it, so that a small
//! request can be sent once more, body and all, and nothing is kept for a large one.

use bytes::BytesMut;

use crate::buffers::Buffer;

/// The bytes of a request on their way.
#[derive(Debug, Default)]
pub(super) struct Upload {
    bytes: Buffer,
    /// How many of them were sent.
    sent: usize,
    /// Whether others were sent before them.
    forgets: bool,
}

impl Upload {
    /// Whether nothing was ever added.
    pub(super) fn is_new(&self) -> bool {
        self.bytes.is_empty() && !self.forgets
    }

    /// What is to be sent.
    pub(super) fn waiting(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// The bytes that were added last, so many of them.
    pub(super) fn last(&self, count: usize) -> &[u8] {
        self.bytes.get(self.bytes.len().saturating_sub(count)..).unwrap_or_default()
    }

    /// Whether all was sent.
    pub(super) fn is_sent(&self) -> bool {
        self.sent >= self.bytes.len()
    }

    /// Whether everything that was added is still there.
    pub(super) const fn is_whole(&self) -> bool {
        !self.forgets
    }

    /// How much content may be added now. What was sent gives way only when all of it was; before that, more room is found.
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

    /// Where to add.
    pub(super) fn end(&mut self) -> &mut BytesMut {
        self.bytes.make_room();
        &mut self.bytes
    }

    /// Notes that so many more bytes were sent.
    pub(super) const fn took(&mut self, count: usize) {
        self.sent += count;
    }

    /// Sends no more of it to this endpoint.
    pub(super) fn skip(&mut self) {
        self.sent = self.bytes.len();
    }

    /// Goes back to the beginning, for another endpoint.
    pub(super) const fn again(&mut self) {
        self.sent = 0;
    }

    /// Forgets everything and gives the buffer back.
    pub(super) fn clear(&mut self) {
        self.bytes.give();
        (self.sent, self.forgets) = (0, false);
    }

    /// The room that it takes.
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
    fn what_is_small_can_be_sent_again() {
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
    fn what_is_large_gives_way_once_it_was_sent() {
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
    fn what_comes_sooner_than_it_is_sent_has_more_room() {
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
