//! Expressions with random faults: compiling and evaluating them never panics.

use std::panic;

use super::*;

const SEEDS: &[&str] = &[
    "request.method == 'GET' && !request.url_path.startsWith('/health')",
    "request.headers['x-list'].split(',').exists(one, one.trim() == 'b')",
    "has(request.headers.cookie) ? request.headers.cookie.substring(2, 3) : 'none'",
    "[1, 2u, 3.5].map(n, double(n) * 2.0).filter(n, n > 2.0).size() == 2",
    "{'a': [1, 2], 'b': [?optional.of(3)]}.all(key, key in ['a', 'b'])",
    "request.time.getHours('Europe/Berlin') >= 8 && duration('1h30m') < request.time - timestamp('2026-01-01T00:00:00Z')",
    "request.headers.?none.orValue(\"\\u00e9\\n\").replace('é', 'e', 1).matches('^[a-z]*$')",
    "int(request.headers['x-tenant'].indexOf('m', 1)) + request.size % 3 - -9223372036854775808",
    "auth.identity.groups.exists(g, g == r'a\\b') || b'\\xff'.size() == 1 || \"\"\"q\"\"\" != ''",
];

/// A generator that is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or_default() % count.max(1)
    }
}

fn mutate(text: &mut Vec<char>, random: &mut Random) {
    const PIECES: &[&str] = &[
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".",
        "?",
        ":",
        ",",
        "'",
        "\"",
        "\\",
        "@",
        "`",
        "é",
        "0",
        "-",
        "!",
        " in ",
        "&&",
        ".map(x,",
        ".?",
        "[?",
        "9223372036854775807",
        "1e999",
        "request",
        "optional.none()",
        "\0",
    ];
    let place = random.below(text.len() + 1);
    let end = (place + random.below(8)).min(text.len());
    match random.below(5) {
        0 => drop(text.drain(place..end)),
        1 => {
            let piece = PIECES[random.below(PIECES.len())].chars();
            drop(text.splice(place..place, piece));
        }
        2 => {
            let copied: Vec<char> = text[place..end].to_vec();
            let to = random.below(text.len() + 1);
            drop(text.splice(to..to, copied));
        }
        3 => {
            let other: Vec<char> = SEEDS[random.below(SEEDS.len())].chars().collect();
            let from = random.below(other.len());
            let taken = other[from..(from + random.below(30)).min(other.len())].to_vec();
            drop(text.splice(place..end, taken));
        }
        _ => text.truncate(place),
    }
}

/// `EXPRESSIONS_MUTATED=100000` tries more.
#[test]
#[allow(clippy::disallowed_methods, reason = "how many are tried is said in the environment")]
fn mutated_expressions_do_not_panic() {
    let count = std::env::var("EXPRESSIONS_MUTATED").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut usable, mut valued) = (0_usize, 0_usize);
    for nth in 0..count {
        let mut text: Vec<char> = SEEDS[nth % SEEDS.len()].chars().collect();
        for _ in 0..random.below(4) {
            mutate(&mut text, &mut random);
        }
        let source: String = text.into_iter().collect();
        let checked = panic::catch_unwind(|| {
            // Without the nets that catch panics of the library.
            if let Ok(mut expression) = parse(&source)
                && bounds::check_shape(&expression).is_ok()
                && let Ok(names) = Names::of(&mut expression)
                && bounds::cost(&expression, &names).is_ok()
            {
                let value =
                    with(&head(), |attributes| Program::new(expression, names).evaluate(attributes, program::text));
                assert!(value.as_ref().err().is_none_or(|error| !error.to_string().contains("panicked")));
                return (1, usize::from(value.is_ok()));
            }
            (0, 0)
        });
        let (compiled, evaluated) = checked.unwrap_or_else(|_| panic!("{source:?}"));
        usable += compiled;
        valued += evaluated;
    }
    // The faults are small enough that many expressions are still usable.
    assert!(usable > count / 10 && valued > count / 20, "{usable} of {count} are usable, {valued} have a value");
}
