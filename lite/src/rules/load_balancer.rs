//! The addresses in the status of a Service or an Ingress.

use serde_json::Value;

use super::{list, text};
use crate::causes::Causes;
use crate::names;

/// The path of the list.
const PATH: &str = "status.loadBalancer.ingress";

/// Reports addresses that are none, and names that are addresses.
pub(super) fn check(status: &Value, causes: &mut Causes) {
    for (nth, point) in list(&status["loadBalancer"], "ingress").iter().enumerate() {
        let (ip, hostname) = (text(point, "ip"), text(point, "hostname"));
        if !ip.is_empty() {
            causes.all(&format!("{PATH}[{nth}].ip"), &point["ip"], names::address(ip));
        }
        if hostname.is_empty() {
            continue;
        }
        let field = format!("{PATH}[{nth}].hostname");
        causes.all(&field, &point["hostname"], names::subdomain(hostname));
        if names::address(hostname).is_empty() {
            causes.invalid(field, &point["hostname"], "must be a DNS name, not an IP address");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_all(point: Value, expected: &[&str]) {
        let mut causes = Causes::default();
        check(&json!({"loadBalancer": {"ingress": [point]}}), &mut causes);
        let found: Vec<String> = causes.0.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn addresses_and_names_are_told_apart() {
        check_all(json!({"ip": "1.2.3.4"}), &[]);
        check_all(json!({"ip": "2001:db8::1"}), &[]);
        check_all(json!({"hostname": "a.example"}), &[]);
        let bad = json!({"ip": "a.example", "hostname": "1.2.3.4"});
        let why = names::address("a.example").concat();
        check_all(
            bad,
            &[
                &format!("status.loadBalancer.ingress[0].ip: Invalid value: \"a.example\": {why}"),
                "status.loadBalancer.ingress[0].hostname: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
            ],
        );
    }
}
