//! Quality values in Accept headers (RFC 9110 section 12.4.2).

use tidegate_config::model::Head;

/// Calls `see` with every item of a header of a request and its weight in thousandths, 1000 where it states none.
pub(crate) fn each_weighted<H: Head + ?Sized>(head: &H, header: &str, see: &mut dyn FnMut(&[u8], u16)) {
    head.each_value(header, &mut |value| {
        for item in value.split(|byte| *byte == b',') {
            let mut parts = item.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            see(name, parts.find_map(weight).unwrap_or(WEIGHT_MAX));
        }
    });
}

/// The weight 1, in thousandths.
const WEIGHT_MAX: u16 = 1000;

/// The weight in a parameter, in thousandths, if it is one (RFC 9110 section 12.4.2); 0 if it is invalid.
fn weight(parameter: &[u8]) -> Option<u16> {
    let (name, value) = parameter.split_at_checked(2)?;
    if !name.eq_ignore_ascii_case(b"q=") {
        return None;
    }
    let (whole, fraction) = match value {
        [whole @ (b'0' | b'1')] => (*whole, [].as_slice()),
        [whole @ (b'0' | b'1'), b'.', fraction @ ..] if fraction.len() <= 3 => (*whole, fraction),
        _ => return Some(0),
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return Some(0);
    }
    let digit = |place: usize| fraction.get(place).map_or(0, |digit| u16::from(digit - b'0'));
    let thousandths = u16::from(whole - b'0') * WEIGHT_MAX + digit(0) * 100 + digit(1) * 10 + digit(2);
    Some(if thousandths <= WEIGHT_MAX { thousandths } else { 0 })
}
