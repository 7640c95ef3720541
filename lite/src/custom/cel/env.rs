//! The functions that rules can call: those of the language, its extension for strings, and of Kubernetes' own the ones that
//! published definitions use.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, LazyLock};

use cel::common::types::{CelBool, CelOptional, CelString};
use cel::{Env, ExecutionError, Program};
use regex::{Regex, RegexBuilder};

use super::names;
use crate::rules::metadata::{is_label, is_subdomain};
use crate::selector::{valid_name, valid_value};

/// A compiled pattern, and what running it may take.
const PATTERN_MAX_BYTES: usize = 1 << 20;
/// Patterns that a thread remembers, and programs: definitions that were generated repeat theirs in every version.
const REMEMBERED_MAX: usize = 1_024;

/// Levels of an expression: its check and its evaluation recurse as deep, on the stack of the caller.
const DEPTH_MAX: usize = 100;
/// For as many levels as an expression can have that is not too long. Only the part of it that is used becomes memory.
const STACK_BYTES: usize = 256 << 20;

/// Every function that an expression may name, operators aside.
pub(super) const FUNCTIONS: &[&str] = &[
    "bool",
    "bytes",
    "charAt",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "find",
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
    "isCIDR",
    "isIP",
    "isURL",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "matches",
    "none",
    "of",
    "ofNonZeroValue",
    "optional.none",
    "optional.of",
    "optional.ofNonZeroValue",
    "or",
    "orValue",
    "replace",
    "reverse",
    "size",
    "split",
    "startsWith",
    "string",
    "strings.quote",
    "quote",
    "substring",
    "timestamp",
    "trim",
    "type",
    "uint",
    "upperAscii",
    "value",
    // What `format.NAME().validate(text)` is made of.
    "format.dns1035Label",
    "format.dns1123Label",
    "format.dns1123Subdomain",
    "format.labelValue",
    "format.qualifiedName",
    "dns1035Label",
    "dns1123Label",
    "dns1123Subdomain",
    "labelValue",
    "qualifiedName",
    "validate",
];

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
    cel::add_member_overload!(env, fn matches: (CelString<'_>, CelString<'_>) -> Result<CelBool>)?;
    cel::add_overload!(env, fn matches: (CelString<'_>, CelString<'_>) -> Result<CelBool>)?;
    cel::add_member_overload!(env, fn find: (CelString<'_>, CelString<'_>) -> Result<CelString<'_>>)?;
    cel::add_overload!(env, fn dns_1123_label: () -> CelString<'_>, name = "format.dns1123Label")?;
    cel::add_overload!(env, fn dns_1123_subdomain: () -> CelString<'_>, name = "format.dns1123Subdomain")?;
    cel::add_overload!(env, fn dns_1035_label: () -> CelString<'_>, name = "format.dns1035Label")?;
    cel::add_overload!(env, fn qualified_name: () -> CelString<'_>, name = "format.qualifiedName")?;
    cel::add_overload!(env, fn label_value: () -> CelString<'_>, name = "format.labelValue")?;
    cel::add_member_overload!(env, fn validate: (CelString<'_>, CelString<'_>) -> CelOptional<'_>)?;
    cel::add_overload!(env, fn is_ip: (CelString<'_>) -> CelBool, name = "isIP")?;
    cel::add_overload!(env, fn is_cidr: (CelString<'_>) -> CelBool, name = "isCIDR")?;
    cel::add_overload!(env, fn is_url: (CelString<'_>) -> CelBool, name = "isURL")?;
    Ok(())
}

thread_local! {
    static PATTERNS: RefCell<BTreeMap<String, Regex>> = const { RefCell::new(BTreeMap::new()) };
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

/// Reads an expression on a stack of its own: a chain such as `1 + 1 + 1` is as deep a tree as it is long, and the library goes down
/// into it by calls. What is too deep ends there.
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

/// The regular expression of a text. Rules have theirs as literals, so that a thread compiles each once.
pub(in crate::custom) fn pattern(text: &str) -> Result<Regex, String> {
    PATTERNS.with_borrow_mut(|known| {
        if let Some(regex) = known.get(text) {
            return Ok(regex.clone());
        }
        let built = RegexBuilder::new(text).size_limit(PATTERN_MAX_BYTES).dfa_size_limit(PATTERN_MAX_BYTES).build();
        let regex = built.map_err(|why| why.to_string().lines().last().unwrap_or_default().to_owned())?;
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(text.to_owned(), regex.clone());
        Ok(regex)
    })
}

fn matches(this: &CelString<'_>, regex: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    let regex = pattern(regex.inner()).map_err(|why| ExecutionError::function_error("matches", why))?;
    Ok(regex.is_match(this.inner()).into())
}

fn find(this: &CelString<'_>, regex: &CelString<'_>) -> Result<CelString<'static>, ExecutionError> {
    let regex = pattern(regex.inner()).map_err(|why| ExecutionError::function_error("find", why))?;
    Ok(regex.find(this.inner()).map(|found| found.as_str().to_owned()).unwrap_or_default().into())
}

// A format is its name: only `validate` is ever asked of it.

fn dns_1123_label() -> CelString<'static> {
    "dns1123Label".into()
}

fn dns_1123_subdomain() -> CelString<'static> {
    "dns1123Subdomain".into()
}

fn dns_1035_label() -> CelString<'static> {
    "dns1035Label".into()
}

fn qualified_name() -> CelString<'static> {
    "qualifiedName".into()
}

fn label_value() -> CelString<'static> {
    "labelValue".into()
}

/// What is wrong with a text by a format; nothing if it fits.
fn validate(this: &CelString<'_>, text: &CelString<'_>) -> CelOptional<'static> {
    let (format, text) = (this.inner(), text.inner());
    let fits = match format {
        "dns1123Label" => is_label(text),
        "dns1123Subdomain" => is_subdomain(text),
        "dns1035Label" => is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase()),
        "qualifiedName" => valid_name(text),
        "labelValue" => valid_value(text),
        _ => false,
    };
    if fits {
        return CelOptional::none();
    }
    CelOptional::of(Box::new(CelString::from(format!("{text:?} is no {format}"))))
}

fn is_ip(text: &CelString<'_>) -> CelBool {
    text.inner().parse::<IpAddr>().is_ok().into()
}

fn is_cidr(text: &CelString<'_>) -> CelBool {
    let Some((address, bits)) = text.inner().split_once('/') else { return false.into() };
    let Ok(bits) = bits.parse::<u8>() else { return false.into() };
    let fits = address.parse::<Ipv4Addr>().is_ok() && bits <= 32 || address.parse::<Ipv6Addr>().is_ok() && bits <= 128;
    fits.into()
}

fn is_url(text: &CelString<'_>) -> CelBool {
    let text = text.inner();
    let absolute = text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some());
    (absolute || text.starts_with('/')).into()
}
