//! The headers of a request with the edits of the steps, for derived requests: mirrored ones, and calls to
//! authorisation services.

use http::header::{CONNECTION, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate_config::model::{CONNECTION_HEADERS, Head};

use super::edits::{Edit, Edits};
use super::names::HeaderNames;

/// The headers of a head with edits, without hop-by-hop headers. The authority is among them, as `Host`.
pub(crate) fn edited<H: Head + HeaderNames>(head: &H, edits: &Edits) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(host) = head.authority().and_then(|host| HeaderValue::from_str(host).ok()) {
        headers.insert(HOST, host);
    }
    head.each_name(&mut |name| {
        let Ok(name) = HeaderName::from_bytes(name) else { return };
        if headers.contains_key(&name) {
            return;
        }
        head.each_value(name.as_str(), &mut |value| {
            headers.extend(HeaderValue::from_bytes(value).map(|value| (name.clone(), value)));
        });
    });
    nominated(&headers).iter().for_each(|name| drop(headers.remove(name)));
    for edit in edits.iter() {
        match edit {
            Edit::Remove(name) => drop(headers.remove(name)),
            Edit::Set(name, value) => match HeaderValue::from_bytes(value) {
                Ok(value) => drop(headers.insert(name, value)),
                Err(_) => drop(headers.remove(name)),
            },
            Edit::Add(name, value) => {
                headers.extend(HeaderValue::from_bytes(value).map(|value| (name.clone(), value)));
            }
        }
    }
    CONNECTION_HEADERS.iter().for_each(|name| drop(headers.remove(name)));
    headers
}

/// The header names in `Connection`, which make them hop-by-hop.
pub(crate) fn nominated(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).iter().map(HeaderValue::as_bytes);
    let words = values.flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    words.filter_map(|word| HeaderName::from_bytes(word).ok()).collect()
}
