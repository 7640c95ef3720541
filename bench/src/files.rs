//! The limit of open files of this process and its children.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to its maximum, prints it, and returns it; `None` means no limit.
pub(crate) fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => {
            eprintln!("the limit of open files is raised from {current:?} to {maximum:?}");
            maximum
        }
        Err(error) => {
            eprintln!("the limit of open files stays {current:?}: {error}");
            current
        }
    }
}
