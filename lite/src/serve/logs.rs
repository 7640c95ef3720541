//! `GET …/pods/{name}/log`, with the options and the refusals of the real server and its kubelets.

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Response, StatusCode};
use serde_json::Value;

use super::answer;
use super::body::LiteBody;
use super::query::{flag, number};
use crate::causes::Causes;
use crate::clock;
use crate::failure::Failure;
use crate::lite::Lite;
use crate::logs::Wanted;
use crate::write::Target;

const NANOS: u128 = 1_000_000_000;

/// PodLogOptions, in the form of a query.
#[derive(Debug, Default)]
struct Options {
    container: String,
    previous: bool,
    since_seconds: Option<i64>,
    since_time: Option<u64>,
    tail: Option<i64>,
    bytes_max: Option<i64>,
    follow: bool,
    timestamps: bool,
}

/// Responds with the lines of a container.
pub(super) async fn read(lite: &Lite, target: &Target, query: &str) -> Result<Response<LiteBody>, Failure> {
    let options = Options::parse(query)?;
    options.check(&target.key.name)?;
    let pod = lite.store().look(|state| state.get(&target.kind, &target.key).cloned()).await;
    let pod = pod.ok_or_else(|| Failure::not_found(target.description(), &target.key.name))?;
    let (pod, name) = (pod.value(), target.key.name.as_str());
    let container = container(pod, name, &options.container)?;
    let key = (target.key.namespace.clone(), name.to_owned(), container.clone());
    // A Pod without a node has no log yet, nor does a container that nothing runs.
    let none = || Ok(plain(LiteBody::whole(Bytes::new())));
    if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
        return none();
    }
    let Some(runs) = lite.logs().of(&key) else { return none() };
    let run = if options.previous {
        let missing = || format!("previous terminated container \"{container}\" in pod \"{name}\" not found");
        runs.previous.ok_or_else(|| Failure::bad_request(missing()))?
    } else {
        let waits = || format!("container \"{container}\" in pod \"{name}\" is waiting to start: ContainerCreating");
        runs.current.ok_or_else(|| Failure::bad_request(waits()))?
    };
    let wanted = options.wanted(lite.now().unix.as_nanos());
    Ok(plain(if wanted.follow {
        LiteBody::watch(run.follow(&wanted, lite.logs().closing()).boxed())
    } else {
        LiteBody::whole(run.read(&wanted))
    }))
}

fn plain(body: LiteBody) -> Response<LiteBody> {
    answer::with(StatusCode::OK, "text/plain", body)
}

/// The requested container: the only one if the request names none.
fn container(pod: &Value, name: &str, asked: &str) -> Result<String, Failure> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
    };
    let (containers, init) = (names("containers"), names("initContainers"));
    if !asked.is_empty() {
        let known = containers.iter().chain(&init).any(|one| one == asked);
        let unknown = || Failure::bad_request(format!("container {asked} is not valid for pod {name}"));
        return if known { Ok(asked.to_owned()) } else { Err(unknown()) };
    }
    match containers.as_slice() {
        [only] => Ok(only.clone()),
        _ => {
            let mut why = format!("a container name must be specified for pod {name}");
            if !containers.is_empty() {
                why.push_str(&format!(", choose one of: [{}]", containers.join(" ")));
            }
            if !init.is_empty() {
                why.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
            }
            Err(Failure::bad_request(why))
        }
    }
}

impl Options {
    fn parse(query: &str) -> Result<Self, Failure> {
        let mut options = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match key.as_ref() {
                "container" => options.container = value.into_owned(),
                "previous" => options.previous = flag(&value),
                "follow" => options.follow = flag(&value),
                "timestamps" => options.timestamps = flag(&value),
                "sinceSeconds" => options.since_seconds = Some(number(&key, &value)?),
                "tailLines" => options.tail = Some(number(&key, &value)?),
                "limitBytes" => options.bytes_max = Some(number(&key, &value)?),
                "sinceTime" => {
                    let refused =
                        || Failure::bad_request(format!("{key}: invalid value {value:?}: not a time of RFC 3339"));
                    options.since_time = Some(clock::seconds(&value).ok_or_else(refused)?);
                }
                _ => {}
            }
        }
        Ok(options)
    }

    fn check(&self, pod: &str) -> Result<(), Failure> {
        let mut causes = Causes::default();
        if let Some(tail) = self.tail.filter(|tail| *tail < 0) {
            causes.invalid("tailLines", &tail.into(), "must be greater than or equal to 0");
        }
        if let Some(bytes) = self.bytes_max.filter(|bytes| *bytes < 1) {
            causes.invalid("limitBytes", &bytes.into(), "must be greater than 0");
        }
        match self.since_seconds {
            Some(_) if self.since_time.is_some() => {
                causes.forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified");
            }
            Some(seconds) if seconds < 1 => causes.invalid("sinceSeconds", &seconds.into(), "must be greater than 0"),
            Some(_) | None => {}
        }
        if causes.0.is_empty() { Ok(()) } else { Err(Failure::invalid_part("PodLogOptions", "", pod, &causes.0)) }
    }

    fn wanted(&self, now_nanos: u128) -> Wanted {
        let positive = |number: i64| u64::try_from(number).unwrap_or_default();
        let seconds = self.since_seconds.map(|seconds| now_nanos.saturating_sub(u128::from(positive(seconds)) * NANOS));
        Wanted {
            follow: self.follow,
            timestamps: self.timestamps,
            tail: self.tail.map(positive),
            since: seconds.or(self.since_time.map(|seconds| u128::from(seconds) * NANOS)),
            bytes_max: self.bytes_max.map(positive),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &str) {
        let checked = Options::parse(query).and_then(|options| options.check("web-1"));
        let message = checked.err().map(|failure| failure.status()["message"].as_str().unwrap().to_owned());
        assert_eq!(message.unwrap_or_default(), expected, "{query}");
    }

    #[test]
    fn bad_options_are_refused_by_name() {
        check("tailLines=0&sinceSeconds=1&limitBytes=1&follow&timestamps=true", "");
        let invalid = "PodLogOptions \"web-1\" is invalid: ";
        check("tailLines=-1", &format!("{invalid}tailLines: Invalid value: -1: must be greater than or equal to 0"));
        check("limitBytes=0", &format!("{invalid}limitBytes: Invalid value: 0: must be greater than 0"));
        check("sinceSeconds=0", &format!("{invalid}sinceSeconds: Invalid value: 0: must be greater than 0"));
        check(
            "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            &format!("{invalid}: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"),
        );
        check("tailLines=x", "tailLines: invalid value \"x\": not a number");
        check("sinceTime=yesterday", "sinceTime: invalid value \"yesterday\": not a time of RFC 3339");
        check("follow=maybe", "");
    }

    #[test]
    fn a_container_is_named_where_there_are_several() {
        let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}});
        let message = |asked: &str| match container(&pod, "web-1", asked) {
            Ok(container) => container,
            Err(failure) => failure.status()["message"].as_str().unwrap().to_owned(),
        };
        assert_eq!((message("b"), message("i")), ("b".to_owned(), "i".to_owned()));
        assert_eq!(message("c"), "container c is not valid for pod web-1");
        let several =
            "a container name must be specified for pod web-1, choose one of: [a b] or one of the init containers: [i]";
        assert_eq!(message(""), several);
        assert_eq!(container(&json!({"spec": {"containers": [{"name": "a"}]}}), "web-1", "").unwrap(), "a");
    }
}
