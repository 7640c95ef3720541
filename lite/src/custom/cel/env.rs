//! The environment that rules are read and evaluated in: the functions of the language, its extension for strings, and
//! the libraries of Kubernetes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use cel::{Env, Program};

use super::{library, names};

/// Patterns that a thread remembers, and programs: definitions that were generated repeat theirs in every version.
pub(super) const REMEMBERED_MAX: usize = 1_024;

/// Levels of an expression: its check and its evaluation recurse as deep, on the stack of the caller.
const DEPTH_MAX: usize = 100;
/// For as many levels as an expression can have that is not too long. Only the part of it that is used becomes memory.
const STACK_BYTES: usize = 256 << 20;

/// The functions of the language and of its extension for strings that an expression may name, operators aside.
const FUNCTIONS: &[&str] = &[
    "bool",
    "bytes",
    "charAt",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "format",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "hasValue",
    "indexOf",
    "int",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "none",
    "of",
    "ofNonZeroValue",
    "optional.none",
    "optional.of",
    "optional.ofNonZeroValue",
    "or",
    "orValue",
    "quote",
    "replace",
    "size",
    "split",
    "startsWith",
    "string",
    "strings.quote",
    "substring",
    "timestamp",
    "trim",
    "type",
    "uint",
    "upperAscii",
    "value",
];

/// Whether there is a function of this name.
pub(super) fn has_function(name: &str) -> bool {
    FUNCTIONS.contains(&name) || library::FUNCTIONS.iter().any(|functions| functions.contains(&name))
}

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    let added = extend(&mut env);
    debug_assert!(added.is_ok(), "{added:?}");
    Arc::new(env)
});

/// The environment of all rules.
pub(super) fn env() -> Arc<Env> {
    ENV.clone()
}

fn extend(env: &mut Env) -> Result<(), cel::DeclarationError> {
    env.add_extension(cel::extensions::strings)?;
    library::extend(env)
}

thread_local! {
    static PROGRAMS: RefCell<BTreeMap<String, Arc<Program>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The program of a text.
pub(super) fn program(text: &str) -> Result<Arc<Program>, String> {
    if let Some(program) = PROGRAMS.with_borrow(|known| known.get(text).cloned()) {
        return Ok(program);
    }
    let program = Arc::new(read(text)?);
    PROGRAMS.with_borrow_mut(|known| {
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(text.to_owned(), program.clone());
    });
    Ok(program)
}

/// Reads an expression on a stack of its own: a chain such as `1 + 1 + 1` is as deep a tree as it is long, and the
/// library goes down into it by calls. Deeper nesting ends there.
fn read(text: &str) -> Result<Program, String> {
    let read = || {
        let program = env().compile(text).map_err(|why| why.to_string().trim().to_owned())?;
        if names::depth(program.expression()) > DEPTH_MAX {
            return Err(format!("expressions may not be nested deeper than {DEPTH_MAX}"));
        }
        Ok(program)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, read);
        let thread = thread.map_err(|why| format!("the expression cannot be parsed: {why}"))?;
        // A fault of the library is an expression that cannot be read, and not the end of the server.
        thread.join().map_err(|_| "the expression cannot be parsed".to_owned())?
    })
}
