//! The kinds that are cached and served for other readers.

use std::sync::Arc;

use tidegate_config::object::Kind;
use tidegate_control::CachedKind;

use super::InvalidValue;
use crate::args::CachedArgs;

const KINDS: &str = "--cache-kinds";
/// The default kinds of `lite`: those that an edge for Ingresses reads.
const OF_AN_EDGE: [Kind; 4] = [Kind::Service, Kind::EndpointSlice, Kind::Ingress, Kind::IngressClass];

/// Reads the kinds from the flags.
pub(super) fn read(args: &CachedArgs) -> Result<Vec<CachedKind>, InvalidValue> {
    let mut kinds: Vec<CachedKind> = Vec::new();
    for text in &args.cache_kinds {
        let read = kind(text)?;
        if kinds.iter().any(|other| (&other.plural, &other.group) == (&read.plural, &read.group)) {
            return Err(InvalidValue::new(KINDS, text, "is named twice"));
        }
        kinds.push(read);
    }
    select("--cache-selector", &args.cache_selector, &mut kinds, |kind| &mut kind.label_selector)?;
    select("--cache-field-selector", &args.cache_field_selector, &mut kinds, |kind| &mut kind.field_selector)?;
    Ok(kinds)
}

/// Refuses kinds that routing reads: they are served anyway, as far as routing reads them.
pub(super) fn beside(kinds: &[CachedKind], routed: impl IntoIterator<Item = Kind>) -> Result<(), InvalidValue> {
    let routed: Vec<Kind> = routed.into_iter().collect();
    let is = |kind: &CachedKind, routed: &Kind| *kind.plural == *routed.plural() && *kind.group == *routed.group();
    if let Some(secrets) = kinds.iter().find(|kind| kind.is_secret()) {
        return Err(InvalidValue::new(KINDS, secrets.to_string(), "is read for routing; --serve-secrets serves them"));
    }
    let named = kinds.iter().find_map(|kind| Some((kind, routed.iter().find(|routed| is(kind, routed))?)));
    match named {
        Some((kind, routed)) if routed.is_of_gateway_api() || *routed == Kind::Namespace => Err(InvalidValue::new(
            KINDS,
            kind.to_string(),
            "is read for routing and served without this flag while the cluster has the Gateway API; not so with --source ingress",
        )),
        Some((kind, _)) => {
            Err(InvalidValue::new(KINDS, kind.to_string(), "is read for routing and served without this flag"))
        }
        None => Ok(()),
    }
}

/// The kinds of `lite`: the named ones, or those that an edge reads. Secrets are among them only if they are to be
/// served.
pub(super) fn of_lite(mut kinds: Vec<CachedKind>, secrets: bool) -> Result<Vec<CachedKind>, InvalidValue> {
    let of = |kind: Kind| CachedKind::new(kind.plural(), kind.group(), None);
    if kinds.is_empty() {
        kinds = OF_AN_EDGE.into_iter().map(of).collect();
    }
    match (kinds.iter().any(CachedKind::is_secret), secrets) {
        (true, false) => Err(InvalidValue::new(KINDS, "secrets", "needs --serve-secrets")),
        (false, true) => Ok([kinds, vec![of(Kind::Secret)]].concat()),
        (true, true) | (false, false) => Ok(kinds),
    }
}

/// Parses `pods`, `deployments.apps` or `certificates.cert-manager.io/v1`.
fn kind(text: &str) -> Result<CachedKind, InvalidValue> {
    let refuse =
        || InvalidValue::new(KINDS, text, "is not of the form PLURAL[.GROUP][/VERSION], such as deployments.apps");
    let (name, version) = text.split_once('/').map_or((text, None), |(name, version)| (name, Some(version)));
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    let label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.len() <= 63 && label.bytes().all(plain)
    };
    let group_is_one = !name.contains('.') || group.split('.').all(label);
    if !label(plural) || !group_is_one || version.is_some_and(|version| !label(version)) {
        return Err(refuse());
    }
    Ok(CachedKind::new(plural, group, version))
}

fn select(
    flag: &'static str,
    given: &[String],
    kinds: &mut [CachedKind],
    selector: impl Fn(&mut CachedKind) -> &mut Option<Arc<str>>,
) -> Result<(), InvalidValue> {
    for text in given {
        let parts = text.split_once(':').filter(|(_, wanted)| !wanted.is_empty());
        let (name, wanted) = parts.ok_or_else(|| InvalidValue::new(flag, text, "is not of the form KIND:SELECTOR"))?;
        let found = kinds.iter_mut().find(|kind| kind.to_string() == name);
        let found = found.ok_or_else(|| InvalidValue::new(flag, text, "names no kind of --cache-kinds"))?;
        if selector(found).replace(wanted.into()).is_some() {
            return Err(InvalidValue::new(flag, text, "is a second selector for the same kind"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kinds: &[&str], labels: &[&str], want: Result<&[&str], &str>) {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let args = CachedArgs { cache_kinds: texts(kinds), cache_selector: texts(labels), ..CachedArgs::default() };
        let shown = |kind: CachedKind| {
            let selector = kind.label_selector.as_deref().map(|it| format!(" {it}")).unwrap_or_default();
            format!("{kind}{selector}")
        };
        let got = read(&args).map(|kinds| kinds.into_iter().map(shown).collect::<Vec<_>>());
        match want {
            Ok(want) => assert_eq!(got.unwrap(), want),
            Err(why) => assert!(got.as_ref().is_err_and(|got| got.to_string().contains(why)), "{got:?}"),
        }
    }

    #[test]
    fn label_and_field_selectors_go_to_their_kinds() {
        let args = CachedArgs {
            cache_kinds: vec!["pods".to_owned(), "deployments.apps".to_owned()],
            cache_selector: vec!["pods:app=web".to_owned()],
            cache_field_selector: vec!["deployments.apps:metadata.name=web".to_owned()],
        };
        let selectors = read(&args).unwrap().into_iter().map(|kind| (kind.label_selector, kind.field_selector));
        let (label, field) = (Some("app=web".into()), Some("metadata.name=web".into()));
        assert_eq!(selectors.collect::<Vec<_>>(), [(label, None), (None, field)]);
        let unknown = CachedArgs { cache_field_selector: vec!["jobs.batch:a=b".to_owned()], ..args };
        assert!(read(&unknown).is_err_and(|why| why.to_string().starts_with("--cache-field-selector")));
    }

    #[test]
    fn kinds_are_named_as_their_definitions_are() {
        check(&[], &[], Ok(&[]));
        let kinds = ["pods", "deployments.apps", "certificates.cert-manager.io/v1"];
        check(&kinds, &[], Ok(&kinds));
        check(&["Pods"], &[], Err("PLURAL"));
        check(&["pods."], &[], Err("PLURAL"));
        check(&["pods/"], &[], Err("PLURAL"));
        check(&["pods/v1/x"], &[], Err("PLURAL"));
        check(&[""], &[], Err("PLURAL"));
        check(&["pods", "pods/v1"], &[], Err("twice"));
    }

    #[test]
    fn selectors_are_of_kinds_that_are_named() {
        check(&["pods", "nodes"], &["pods:app=web,tier!=test"], Ok(&["pods app=web,tier!=test", "nodes"]));
        check(&["pods"], &["nodes:a=b"], Err("names no kind"));
        check(&["pods"], &["pods:"], Err("KIND:SELECTOR"));
        check(&["pods"], &["app=web"], Err("KIND:SELECTOR"));
        check(&["pods"], &["pods:a=b", "pods:c=d"], Err("second selector"));
    }

    #[test]
    fn the_kinds_of_routing_are_always_served() {
        let refused = |name: &str| beside(&[kind(name).unwrap()], [Kind::Service]).map_err(|why| why.to_string());
        assert!(refused("services").unwrap_err().contains("read for routing"));
        assert!(refused("secrets").unwrap_err().contains("--serve-secrets"));
        assert_eq!(refused("services.serving.knative.dev"), Ok(()));
    }

    #[test]
    fn lite_caches_the_kinds_that_an_edge_reads() {
        let names = |kinds: Vec<CachedKind>| kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let usual =
            "services endpointslices.discovery.k8s.io ingresses.networking.k8s.io ingressclasses.networking.k8s.io";
        assert_eq!(names(of_lite(Vec::new(), false).unwrap()), usual);
        assert_eq!(names(of_lite(Vec::new(), true).unwrap()), format!("{usual} secrets"));
        let secrets = || vec![kind("secrets").unwrap()];
        assert_eq!(names(of_lite(secrets(), true).unwrap()), "secrets");
        assert!(of_lite(secrets(), false).unwrap_err().to_string().contains("--serve-secrets"));
    }
}
