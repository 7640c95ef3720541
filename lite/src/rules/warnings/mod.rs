//! Warnings about values that are allowed, and ignored, deprecated or surprising. They are the real server's, for the
//! kinds whose fields people write; those about the spelling of IP addresses are left out.

mod pod;

use serde_json::Value;

use super::text;
use crate::kind::Kind;
use crate::names;

const CLASS: &str = "kubernetes.io/ingress.class";
const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MODE: &str = "service.kubernetes.io/topology-mode";

/// The warnings about a new version of an object. `old` is absent at creation.
pub(crate) fn of(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    match kind.built_in() {
        Some("Ingress") if old.is_none() => {
            let annotated = new["metadata"]["annotations"].get(CLASS).is_some();
            if annotated && new["spec"]["ingressClassName"].is_null() {
                let instead = "is deprecated, please use 'spec.ingressClassName' instead";
                warnings.push(format!("annotation \"{CLASS}\" {instead}"));
            }
        }
        Some("Service") => service(new, &mut warnings),
        Some("PersistentVolume") => volume(new, &mut warnings),
        Some("Pod") if old.is_none() => {
            check_name(new, "the Pod's hostname", &mut warnings);
            pod::check("", new, &mut warnings);
        }
        Some(of @ ("Deployment" | "ReplicaSet" | "Job" | "CronJob" | "StatefulSet" | "DaemonSet")) => {
            if old.is_none() && !matches!(of, "StatefulSet" | "DaemonSet") {
                check_name(new, "Pod names and hostnames", &mut warnings);
            }
            // An unchanged template is not complained about again.
            if old.is_none_or(|old| old["spec"] != new["spec"]) {
                let (path, spec) = match of {
                    "CronJob" => ("spec.jobTemplate.spec.template", &new["spec"]["jobTemplate"]["spec"]),
                    _ => ("spec.template", &new["spec"]),
                };
                pod::check(path, &spec["template"], &mut warnings);
            }
        }
        _ => {}
    }
    warnings
}

fn check_name(object: &Value, used: &str, warnings: &mut Vec<String>) {
    let complaints = names::label(text(&object["metadata"], "name"));
    if !complaints.is_empty() {
        let why = "which can result in surprising behavior; a DNS label is recommended";
        warnings.push(format!("metadata.name: this is used in {used}, {why}: [{}]", complaints.join(" ")));
    }
}

fn service(new: &Value, warnings: &mut Vec<String>) {
    let spec = &new["spec"];
    if new["metadata"]["annotations"].get(HINTS).is_some() {
        warnings.push(format!("annotation {HINTS} is deprecated, please use {MODE} instead"));
    }
    let is_external = text(spec, "type") == "ExternalName";
    let is_headless = text(spec, "type") == "ClusterIP" && text(spec, "clusterIP") == "None";
    let has_external_ips = !super::list(spec, "externalIPs").is_empty();
    let mut warn = |when: bool, warning: &str| {
        if when {
            warnings.push(warning.to_owned());
        }
    };
    let has_balancer = !text(spec, "loadBalancerIP").is_empty();
    warn(is_headless && has_balancer, "spec.loadBalancerIP is ignored for headless services");
    warn(is_headless && has_external_ips, "spec.externalIPs is ignored for headless services");
    let has_affinity = text(spec, "sessionAffinity") != "None";
    warn(is_headless && has_affinity, "spec.SessionAffinity is ignored for headless services");
    let deprecated = "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
    warn(has_external_ips && !is_headless && !is_external, deprecated);
    warn(has_external_ips && is_external, "spec.externalIPs is ignored when spec.type is \"ExternalName\"");
    let has_name = !text(spec, "externalName").is_empty();
    warn(has_name && !is_external, "spec.externalName is ignored when spec.type is not \"ExternalName\"");
    let close = "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
    warn(text(spec, "trafficDistribution") == "PreferClose", close);
}

fn volume(new: &Value, warnings: &mut Vec<String>) {
    for (key, since, field) in
        [("storage-class", "v1.8", "storageClassName"), ("mount-options", "v1.31", "mountOptions")]
    {
        let key = format!("volume.beta.kubernetes.io/{key}");
        if new["metadata"]["annotations"].get(&key).is_some() {
            let instead = format!("deprecated since {since}; use \"{field}\" attribute instead");
            warnings.push(format!("metadata.annotations[{key}]: {instead}"));
        }
    }
    if new["spec"]["persistentVolumeReclaimPolicy"] == "Recycle" {
        let instead = "Instead, the recommended approach is to use dynamic provisioning.";
        let why = "The Recycle reclaim policy is deprecated.";
        warnings.push(format!("spec.persistentVolumeReclaimPolicy: {why} {instead}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind::KindId;

    #[track_caller]
    fn check(kind: &str, new: &Value, old: Option<&Value>, expected: &[&str]) {
        assert_eq!(of(KindId::built_in(kind).unwrap().description(), new, old), expected);
    }

    #[test]
    fn the_class_of_an_ingress_is_a_field() {
        let annotated = json!({"metadata": {"annotations": {CLASS: "tidegate"}}, "spec": {}});
        let warning =
            "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead";
        check("Ingress", &annotated, None, &[warning]);
        check("Ingress", &annotated, Some(&annotated), &[]);
        let mut both = annotated.clone();
        both["spec"]["ingressClassName"] = "tidegate".into();
        check("Ingress", &both, None, &[]);
    }

    #[test]
    fn a_service_has_fields_of_no_effect() {
        let spec = json!({"type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "ClientIP", "externalIPs": ["192.0.2.1"]});
        let ignored = "is ignored for headless services";
        let headless = [format!("spec.externalIPs {ignored}"), format!("spec.SessionAffinity {ignored}")];
        check("Service", &json!({"spec": spec}), None, &headless.each_ref().map(String::as_str));
        let spec =
            json!({"type": "ClusterIP", "clusterIP": "10.96.0.1", "sessionAffinity": "None", "externalName": "a.b"});
        let other = "spec.externalName is ignored when spec.type is not \"ExternalName\"";
        check("Service", &json!({"spec": spec}), Some(&json!({})), &[other]);
    }

    #[test]
    fn a_changed_template_has_warnings() {
        let name = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]";
        let deployment =
            json!({"metadata": {"name": "a.b"}, "spec": {"template": {"spec": {"volumes": [{"gitRepo": {}}]}}}});
        let volume = "spec.template.spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+";
        check("Deployment", &deployment, None, &[name, volume]);
        check("Deployment", &deployment, Some(&deployment), &[]);
        check("Deployment", &deployment, Some(&json!({})), &[volume]);
        let job = json!({"metadata": {"name": "a"}, "spec": {"jobTemplate": {"spec": deployment["spec"]}}});
        let volume = "spec.jobTemplate.spec.template.spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+";
        check("CronJob", &job, None, &[volume]);
    }
}
