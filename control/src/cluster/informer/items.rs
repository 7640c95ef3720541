//! Extracts the items from the body of a list while it arrives: each is processed as soon as its last byte is there, so
//! that a list takes the memory of its largest item, regardless of the page size of the server. Pure, with a size
//! limit.

use super::frames::TooLong;

/// The received part of a list.
///
/// The caller checks that the items are valid JSON and that the envelope is a list: a truncated body leaves an invalid
/// envelope.
#[derive(Debug)]
pub(super) struct Items {
    /// The list without its items, such as `{"metadata":{"resourceVersion":"7"},"items":[]}`.
    envelope: Vec<u8>,
    /// The start of the last string at the top level of the list in the envelope: before a bracket, it is the name of a
    /// field.
    name_from: usize,
    /// The incomplete item.
    item: Vec<u8>,
    /// Whether the next bytes belong to items, and whether one came before.
    within: Option<ItemPosition>,
    /// The number of open brackets and braces.
    depth: usize,
    text: Text,
    bytes_max: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ItemPosition {
    First,
    Later,
}

/// The position of the next byte relative to JSON strings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Text {
    Outside,
    Inside,
    /// After a backslash.
    Escaped,
}

impl Items {
    /// A list whose items and envelope may have at most `bytes_max` bytes each.
    pub(super) const fn new(bytes_max: usize) -> Self {
        Self {
            envelope: Vec::new(),
            name_from: 0,
            item: Vec::new(),
            within: None,
            depth: 0,
            text: Text::Outside,
            bytes_max,
        }
    }

    /// Processes the next bytes and passes on the items that they complete.
    pub(super) fn push(&mut self, chunk: &[u8], mut whole: impl FnMut(&[u8])) -> Result<(), TooLong> {
        let mut from = 0;
        for (at, byte) in chunk.iter().enumerate() {
            if self.text != Text::Outside {
                self.text = match (self.text, byte) {
                    (Text::Inside, b'"') => Text::Outside,
                    (Text::Inside, b'\\') => Text::Escaped,
                    (Text::Inside | Text::Escaped | Text::Outside, _) => Text::Inside,
                };
                continue;
            }
            match byte {
                b'"' => {
                    self.text = Text::Inside;
                    if self.depth == 1 {
                        self.name_from = self.envelope.len() + at - from;
                    }
                }
                b'{' | b'[' => {
                    self.depth += 1;
                    if *byte == b'[' && self.depth == 2 {
                        self.keep(&chunk[from..=at])?;
                        from = at + 1;
                        self.within = self.named_items().then_some(ItemPosition::First);
                    }
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 1 && self.within.is_some() {
                        self.keep(&chunk[from..at])?;
                        from = at;
                        if self.within == Some(ItemPosition::Later) || !self.item.trim_ascii().is_empty() {
                            whole(&self.item);
                        }
                        self.item.clear();
                        self.within = None;
                    }
                }
                b',' if self.depth == 2 && self.within.is_some() => {
                    self.keep(&chunk[from..at])?;
                    from = at + 1;
                    whole(&self.item);
                    self.item.clear();
                    self.within = Some(ItemPosition::Later);
                }
                _ => {}
            }
        }
        self.keep(&chunk[from..])
    }

    /// The list without its items.
    pub(super) fn into_envelope(self) -> Vec<u8> {
        self.envelope
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        let kept = if self.within.is_some() { &mut self.item } else { &mut self.envelope };
        kept.extend_from_slice(bytes);
        if kept.len() > self.bytes_max { Err(TooLong) } else { Ok(()) }
    }

    /// Whether the bracket at the end of the envelope opens the field `items`.
    fn named_items(&self) -> bool {
        let field = self.envelope[self.name_from..].strip_suffix(b"[").unwrap_or_default();
        field.trim_ascii().strip_suffix(b":").is_some_and(|name| name.trim_ascii() == b"\"items\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the items and the envelope of a body, split at any position.
    #[track_caller]
    fn check(body: &str, items: &[&str], envelope: &str) {
        for size in 1..=body.len() {
            let (mut list, mut got) = (Items::new(64), Vec::new());
            for chunk in body.as_bytes().chunks(size) {
                list.push(chunk, |item| got.push(String::from_utf8(item.to_vec()).unwrap())).unwrap();
            }
            assert_eq!(got, items, "{body} in chunks of {size}");
            assert_eq!(String::from_utf8(list.into_envelope()).unwrap(), envelope, "{body} in chunks of {size}");
        }
    }

    #[test]
    fn items_are_extracted_one_by_one() {
        check(r#"{"metadata":{},"items":[]}"#, &[], r#"{"metadata":{},"items":[]}"#);
        check(r#"{"items":[{"a":[1,2]},{}],"kind":"L"}"#, &[r#"{"a":[1,2]}"#, "{}"], r#"{"items":[],"kind":"L"}"#);
        check("{ \"items\" : [ {} ,\n7 ] }", &[" {} ", "\n7 "], "{ \"items\" : [] }");
        check(r#"{"items":["],\"","\\"]}"#, &[r#""],\"""#, r#""\\""#], r#"{"items":[]}"#);
    }

    #[test]
    fn only_the_lists_own_items_are_extracted() {
        for body in [
            r#"{"metadata":{"items":[1,2]},"items":null}"#,
            r#"{"kind":"items","other":[1,{"items":[2]}]}"#,
            r#"{"x\"items":[1]}"#,
            r#"[{"items":[1]}]"#,
            r#"["items",[1]]"#,
            "<html>]}]}",
        ] {
            check(body, &[], body);
        }
    }

    #[test]
    fn a_comma_separates_items() {
        check(r#"{"items":[1,]}"#, &["1", ""], r#"{"items":[]}"#);
        check(r#"{"items":[,]}"#, &["", ""], r#"{"items":[]}"#);
        check(r#"{"items":[{}{}]}"#, &["{}{}"], r#"{"items":[]}"#);
    }

    #[test]
    fn a_truncated_body_is_not_a_list() {
        check(r#"{"items":[{},{"a""#, &["{}"], r#"{"items":["#);
        check(r#"{"items":[{}]"#, &["{}"], r#"{"items":[]"#);
    }

    #[test]
    fn the_limit_applies_to_each_item_and_to_the_rest() {
        let push = |body: &str| Items::new(16).push(body.as_bytes(), |_| {});
        assert_eq!(push(r#"{"items":["12345678901234"]}"#), Ok(()));
        assert_eq!(push(r#"{"items":["123456789012345"]}"#), Err(TooLong));
        assert_eq!(push(r#"{"items":["1234567890123"#), Ok(()));
        assert_eq!(push(r#"{"items":["12345678901234567"#), Err(TooLong));
        assert_eq!(push(r#"{"items":[1,2,3,4,5,6,7,8,9,0]}"#), Ok(()));
        assert_eq!(push(r#"{"kind":"123456789"}"#), Err(TooLong));
    }
}
