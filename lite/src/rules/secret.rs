//! Secrets: `stringData` becomes `data`, and the type is immutable.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{check_immutable, child, default, text};
use crate::failure::Causes;

/// The maximum size of all values of a Secret together, decoded, in bytes.
const DATA_MAX_BYTES: usize = 1024 * 1024;

pub(super) fn defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    default(new, "type", "Opaque");
    if let Some(Value::Object(plain)) = new.as_object_mut().and_then(|secret| secret.remove("stringData")) {
        for (key, value) in plain {
            child(new, "data")[key] = STANDARD.encode(value.as_str().unwrap_or_default()).into();
        }
    }
}

pub(super) fn validate(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    let mut bytes = 0;
    for (key, value) in new["data"].as_object().into_iter().flatten() {
        let field = format!("data[{key}]");
        if !is_key(key) {
            let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
            causes.invalid(&field, &key.clone().into(), why);
        }
        match value.as_str().map(|text| STANDARD.decode(text)) {
            Some(Ok(decoded)) => bytes += decoded.len(),
            // The value itself is never repeated: it may be a secret that the user forgot to encode.
            Some(Err(_)) | None => causes.invalid(&field, &"<omitted>".into(), "must be base64"),
        }
    }
    if bytes > DATA_MAX_BYTES {
        causes.invalid("data", &"<omitted>".into(), "may not be more than 1048576 bytes");
    }
    if text(new, "type") == "kubernetes.io/tls" {
        for key in ["tls.crt", "tls.key"].into_iter().filter(|key| new["data"].get(key).is_none()) {
            causes.required(format!("data[{key}]"), "");
        }
    }
    if let Some(old) = old {
        check_immutable("type", &new["type"], &old["type"], causes);
        if old["immutable"] == true {
            if new["immutable"] != true {
                causes.forbidden("immutable", "field is immutable when `immutable` is set");
            }
            if new["data"] != old["data"] {
                causes.forbidden("data", "field is immutable when `immutable` is set");
            }
        }
    }
}

fn is_key(key: &str) -> bool {
    (1..=253).contains(&key.len())
        && key.bytes().all(|one| one.is_ascii_alphanumeric() || matches!(one, b'-' | b'_' | b'.'))
        && key != "."
        && !key.starts_with("..")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::tests::{check_refused, outcome};

    #[test]
    fn plain_text_is_encoded_and_wins() {
        let secret = json!({"data": {"a": "eA==", "b": "eQ=="}, "stringData": {"a": "hello"}});
        let secret = outcome("Secret", secret, None).unwrap();
        assert_eq!(secret["data"], json!({"a": "aGVsbG8=", "b": "eQ=="}));
        assert_eq!(secret.get("stringData"), None);
        assert_eq!(secret["type"], "Opaque");
    }

    #[test]
    fn bad_secrets_are_refused_without_repeating_them() {
        check_refused(
            "Secret",
            json!({"data": {"a": "pass word"}}),
            None,
            "data[a]: Invalid value: \"<omitted>\": must be base64",
        );
        check_refused(
            "Secret",
            json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}),
            None,
            "data[tls.key]: Required value",
        );
        let old = json!({"type": "Opaque"});
        check_refused(
            "Secret",
            json!({"type": "other"}),
            Some(&old),
            "type: Invalid value: \"other\": field is immutable",
        );
        let old = json!({"type": "Opaque", "immutable": true, "data": {}});
        check_refused(
            "Secret",
            json!({"immutable": true, "data": {"a": ""}}),
            Some(&old),
            "data: Forbidden: field is immutable when `immutable` is set",
        );
    }
}
