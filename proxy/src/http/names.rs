//! Header names that are used in more than one place.

use http::HeaderName;

/// The header that counts the passes through the edge.
pub(crate) static CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");
pub(crate) static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The name of the edge in `Server`.
pub(crate) const SERVER_NAME: &str = "tidegate";

/// Of draft-ietf-httpapi-ratelimit-headers-10.
pub(crate) static RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// Of the same draft.
pub(crate) static RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// The ids of a request on its way, the newest last.
pub(crate) static X_CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");
/// The arrival time of a request at the edge.
pub(crate) static X_REQUEST_START: HeaderName = HeaderName::from_static("x-request-start");
pub(crate) static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(crate) static X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
pub(crate) static X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The header for a request that came before the TLS handshake was complete (RFC 8470 section 5.1).
pub(crate) static EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

/// The prefix of headers with which a proxy describes how a request reached it. The edge sets some of them itself.
pub(crate) const FORWARDED_AS: &[u8] = b"x-forwarded-";

/// A head whose headers can be listed.
pub(crate) trait HeaderNames {
    /// Calls `see` with the name of every header, in any case; a name with several values may occur more than once.
    fn each_name(&self, see: &mut dyn FnMut(&[u8]));
}

/// Returns `true` if two header names are equal in any case (RFC 9110 section 5.1). A request compares names some forty
/// times, so they are compared by blocks of eight bytes, of which the last may overlap the one before it.
#[inline]
pub(crate) fn same_name(one: &[u8], other: &[u8]) -> bool {
    // Most have different lengths.
    one.len() == other.len() && same_letters(one, other)
}

/// The same for names of one length.
fn same_letters(one: &[u8], other: &[u8]) -> bool {
    if let (Some(end), Some(other_end)) = (one.last_chunk::<8>(), other.last_chunk::<8>()) {
        let (blocks, other_blocks) = (one.as_chunks::<8>().0, other.as_chunks::<8>().0);
        let same =
            |one: &[u8; 8], other: &[u8; 8]| lower(u64::from_ne_bytes(*one)) == lower(u64::from_ne_bytes(*other));
        return same(end, other_end) && blocks.iter().zip(other_blocks).all(|(one, other)| same(one, other));
    }
    if let (Some(end), Some(other_end)) = (one.last_chunk::<4>(), other.last_chunk::<4>()) {
        let start = one.first_chunk::<4>().zip(other.first_chunk::<4>());
        let both = |start: &[u8; 4], end: &[u8; 4]| {
            lower(u64::from(u32::from_ne_bytes(*start)) << 32 | u64::from(u32::from_ne_bytes(*end)))
        };
        return start.is_some_and(|(start, other_start)| both(start, end) == both(other_start, other_end));
    }
    one.eq_ignore_ascii_case(other)
}

/// Eight bytes with their ASCII letters in lower case.
const fn lower(bytes: u64) -> u64 {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    // The highest bit of each byte says what holds for it; the sums stay within their bytes, for they leave it out.
    let low = bytes & (0x7f * EACH);
    let from_a = low + (0x80 - b'A' as u64) * EACH;
    let beyond_z = low + (0x80 - b'Z' as u64 - 1) * EACH;
    let upper = from_a & !beyond_z & !bytes & (0x80 * EACH);
    bytes | upper >> 2
}

/// Returns `true` if a name is another spelling of a decided one: servers that turn headers into variables read both as
/// one header. CGI (RFC 3875 section 4.1.18) and WSGI write an underscore for a hyphen, PHP also for a dot, and some
/// servers for every character that is neither a letter nor a digit. The same name in another case is not another
/// spelling.
#[inline]
pub(crate) fn is_other_spelling(name: &[u8], decided: &[u8]) -> bool {
    name.len() == decided.len() && reads_alike(name, decided) && !same_letters(name, decided)
}

/// Returns `true` if a name has a character besides letters, digits and hyphens. Of two spellings that differ, one has.
#[inline]
pub(crate) fn is_odd(name: &[u8]) -> bool {
    name.iter().any(|byte| IS_ODD[usize::from(*byte)])
}

const IS_ODD: [bool; 256] = {
    let mut odd = [true; 256];
    let mut byte = 0_u8;
    while byte < u8::MAX {
        odd[byte as usize] = !byte.is_ascii_alphanumeric() && byte != b'-';
        byte += 1;
    }
    odd
};

/// Returns `true` if the first bytes of a name are a spelling of a prefix, of this one or another.
pub(crate) fn begins_like(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len()).is_some_and(|start| reads_alike(start, prefix))
}

/// Returns `true` if two names of one length become the same variable.
fn reads_alike(one: &[u8], other: &[u8]) -> bool {
    let variable = |byte: &u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'_' };
    one.iter().map(variable).eq(other.iter().map(variable))
}

/// Returns `true` for the `Content-Type` of gRPC, or of a protocol derived from it.
pub(crate) fn is_grpc_type(value: &[u8]) -> bool {
    value.get(..16).is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_equal_in_any_case() {
        // Every byte at every place of short, medium and long names, beside the byte that differs by the bit of the
        // case.
        for length in 1..=20 {
            for place in 0..length {
                for byte in 0..=u8::MAX {
                    for other in [byte, byte ^ 0x20, byte ^ 0x80, byte.wrapping_add(1)] {
                        let name =
                            |byte| (0..length).map(|at| if at == place { byte } else { b'X' + at as u8 }).collect();
                        let (one, other): (Vec<u8>, Vec<u8>) = (name(byte), name(other));
                        let want = one.eq_ignore_ascii_case(&other);
                        assert_eq!(same_name(&one, &other), want, "{} {}", one.escape_ascii(), other.escape_ascii());
                    }
                }
            }
        }
        assert!(same_name(b"", b"") && !same_name(b"", b"a") && !same_name(b"content-length", b"content-lengt"));
    }
    #[test]
    fn spellings_differ_in_characters_that_are_neither_letters_nor_digits() {
        let check = |name: &str, want: bool| {
            assert_eq!(is_other_spelling(name.as_bytes(), b"x-user-id"), want, "{name}");
            assert_eq!(is_other_spelling(b"x-user-id", name.as_bytes()), want, "{name}");
        };
        for other in ["x_user_id", "X_User-Id", "x-user_id", "x.user.id", "X-USER.ID", "x~user|id", "x!user^id"] {
            check(other, true);
            assert!(is_odd(other.as_bytes()) && !is_odd(b"X-User-Id-0"), "{other}");
        }
        for name in ["x-user-id", "X-User-ID", "xuserid", "x-user-i", "x_user_idd", "x-user-ia", "x-userxid", ""] {
            check(name, false);
        }
        assert!(begins_like(b"X_Forwarded.For", FORWARDED_AS) && begins_like(b"x-forwarded-", FORWARDED_AS));
        assert!(!begins_like(b"x-forwarded", FORWARDED_AS) && !begins_like(b"x-forward-ed-", FORWARDED_AS));
    }
}
