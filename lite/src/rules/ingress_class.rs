//! IngressClasses: the controller is immutable.

use serde_json::Value;

use super::{check_immutable, text};
use crate::causes::Causes;

pub(super) fn validate(new: &Value, old: Option<&Value>, causes: &mut Causes) {
    let controller = &new["spec"]["controller"];
    if text(&new["spec"], "controller").is_empty() {
        causes.required("spec.controller", "");
    } else if !text(&new["spec"], "controller").contains('/') {
        let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        causes.invalid("spec.controller", controller, why);
    }
    if let Some(old) = old {
        check_immutable("spec.controller", controller, &old["spec"]["controller"], causes);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::tests::{check_refused, outcome};

    #[test]
    fn the_controller_is_required_and_immutable() {
        let class = json!({"spec": {"controller": "tidegate.io/ingress"}});
        assert!(outcome("IngressClass", class.clone(), Some(&class)).is_ok());
        check_refused("IngressClass", json!({}), None, "spec.controller: Required value");
        check_refused(
            "IngressClass",
            json!({"spec": {"controller": "a.b/c"}}),
            Some(&class),
            "spec.controller: Invalid value: \"a.b/c\": field is immutable",
        );
    }
}
