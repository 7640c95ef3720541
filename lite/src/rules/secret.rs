//! Secrets: `stringData` becomes `data`, and the type is immutable.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{check_immutable, child, config_map, default, text};
use crate::causes::Causes;
use crate::json;
use crate::names;

pub(super) fn defaults(new: &mut Value, _old: Option<&Value>, _serial: u64) {
    default(new, "type", "Opaque");
    if let Some(Value::Object(plain)) = new.as_object_mut().and_then(|secret| secret.remove("stringData")) {
        for (key, value) in plain {
            child(new, "data")[key] = STANDARD.encode(value.as_str().unwrap_or_default()).into();
        }
    }
}

pub(super) fn validate(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    if let Some(old) = old {
        check_immutable("type", &new["type"], &old["type"], causes);
        config_map::check_immutable(new, Some(old), &["data"], causes);
    }
    for (key, _) in config_map::entries(new, "data") {
        causes.all(&format!("data[{key}]"), &key.as_str().into(), names::key(key));
    }
    let bytes: usize = config_map::entries(new, "data").map(|(_, value)| config_map::decoded_bytes(value)).sum();
    if bytes > config_map::VALUES_MAX_BYTES {
        causes.too_long("data", "may not be more than 1048576 bytes");
    }
    check_type(new, causes);
}

/// Reports keys that a Secret of its type must have.
fn check_type(secret: &Value, causes: &mut Causes) {
    const ACCOUNT: &str = "kubernetes.io/service-account.name";
    let has = |key: &str| secret["data"].get(key).is_some();
    let mut require = |keys: &[&str]| {
        for key in keys.iter().filter(|key| !has(key)) {
            causes.required(format!("data[{key}]"), "");
        }
    };
    match text(secret, "type") {
        "kubernetes.io/tls" => require(&["tls.crt", "tls.key"]),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => require(&["username", "password"]),
        "kubernetes.io/ssh-auth" if text(&secret["data"], "ssh-privatekey").is_empty() => {
            causes.required("data[ssh-privatekey]", "");
        }
        "kubernetes.io/dockercfg" if !has(".dockercfg") => require(&[".dockercfg"]),
        "kubernetes.io/dockerconfigjson" if !has(".dockerconfigjson") => require(&[".dockerconfigjson"]),
        "kubernetes.io/dockercfg" => check_json(secret, ".dockercfg", causes),
        "kubernetes.io/dockerconfigjson" => check_json(secret, ".dockerconfigjson", causes),
        "kubernetes.io/service-account-token" if text(&secret["metadata"]["annotations"], ACCOUNT).is_empty() => {
            causes.required(format!("metadata.annotations[{ACCOUNT}]"), "");
        }
        _ => {}
    }
}

/// Reports a value that is not a JSON object, without repeating any of it but the character at which it ceases to be
/// one.
fn check_json(secret: &Value, key: &str, causes: &mut Causes) {
    let bytes = STANDARD.decode(text(&secret["data"], key)).unwrap_or_default();
    let why = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(other) => json::not_an_object(&other),
        Err(why) => json::complaint(&bytes, &why),
    };
    causes.invalid(format!("data[{key}]"), &"<secret contents redacted>".into(), &why);
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
        let docker =
            |text: &str| json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": text}});
        let check = |text: &str, why: &str| {
            let why = format!("data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": {why}");
            check_refused("Secret", docker(text), None, &why);
        };
        assert!(outcome("Secret", docker("{}"), None).is_ok());
        check("{", "unexpected end of JSON input");
        check("words", "invalid character 'w' looking for beginning of value");
        check("[]", "json: cannot unmarshal array into Go value of type map[string]interface {}");
        let user = json!({"type": "kubernetes.io/basic-auth", "stringData": {"username": ""}});
        assert!(outcome("Secret", user, None).is_ok());
        let nobody = "[data[username]: Required value, data[password]: Required value]";
        check_refused("Secret", json!({"type": "kubernetes.io/basic-auth"}), None, nobody);
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
