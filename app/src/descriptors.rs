//! How many files the process may have open, and how many connections follow from that.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is needed beside the connections of clients: sockets, watches, logs, the edge cache.
const RESERVE: u64 = 256;

/// Raises the limit of open files as far as the process may, and returns what it is then; `None` is none.
pub(crate) fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, ?current, ?maximum, "the limit of open files cannot be raised");
            current
        }
    }
}

/// How many connections of clients there may be: each takes a file, and usually one more towards an endpoint.
pub(crate) fn connections_max(open_files: Option<u64>, wanted: usize) -> usize {
    let Some(files) = open_files else { return wanted };
    let possible = (files.saturating_sub(RESERVE) / 2).max(1);
    usize::try_from(possible).map_or(wanted, |possible| possible.min(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fit_into_the_open_files() {
        for (files, want) in [
            (None, 100_000),
            (Some(1_048_576), 100_000),
            (Some(200_256), 100_000),
            (Some(65_536), 32_640),
            (Some(1024), 384),
            (Some(256), 1),
            (Some(0), 1),
        ] {
            assert_eq!(connections_max(files, 100_000), want, "{files:?}");
        }
    }

    #[test]
    fn the_limit_is_raised_to_what_is_allowed() {
        let raised = raise();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!((raised, limit.current), (limit.maximum, limit.maximum));
    }
}
