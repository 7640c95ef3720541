//! The native form of an expression has the results of the interpreter.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// Texts that are attributes of requests, parts of them, or neither.
const TEXTS: &[&str] = &[
    "GET",
    "POST",
    "GE",
    "T",
    "",
    "/shop",
    "/shop/cart",
    "/shop/cart?q=1",
    "cart",
    "?",
    "acme",
    "a,b",
    "shop.test",
    "192.0.2.9",
    "192.",
    "2.9",
];

fn subject() -> impl Strategy<Value = &'static str> {
    select(vec![
        "request.method",
        "request.url_path",
        "request.path",
        "request.host",
        "request.query",
        "source.remote_address",
        "request.headers['x-a']",
        "request.headers.x_b",
        "request.useragent",
    ])
}

fn term() -> impl Strategy<Value = String> {
    let text = || select(TEXTS).prop_map(|text| format!("'{text}'"));
    prop_oneof![
        (subject(), select(vec!["==", "!="]), text()).prop_map(|(of, by, text)| format!("{of} {by} {text}")),
        (text(), select(vec!["==", "!="]), subject()).prop_map(|(text, by, of)| format!("{text} {by} {of}")),
        (subject(), select(vec!["startsWith", "endsWith", "contains"]), text())
            .prop_map(|(of, by, text)| format!("{of}.{by}({text})")),
        (subject(), prop::collection::vec(text(), 0..4))
            .prop_map(|(of, list)| format!("{of} in [{}]", list.join(", "))),
        (subject(), select(vec!["^/", "a$", "[", "G|P", "b.*a"]))
            .prop_filter_map("a pattern", |(of, by)| (by != "[").then(|| format!("{of}.matches('{by}')"))),
        select(vec!["'x-a' in request.headers", "has(request.headers.x_b)", "true", "false"]).prop_map(str::to_owned),
    ]
}

fn condition() -> impl Strategy<Value = String> {
    term().prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) && ({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) || ({b})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a}) || ({b}) || ({c})")),
            inner.prop_map(|a| format!("!({a})")),
        ]
    })
}

fn request() -> impl Strategy<Value = SampleHead> {
    let line = (select(vec!["x-a", "x_b", "user-agent"]), select(TEXTS));
    let query = select(vec![None, Some(""), Some("q=1")]);
    (select(vec!["GET", "POST"]), query, prop::collection::vec(line, 0..4)).prop_map(|(method, query, lines)| {
        let head = SampleHead::new(method);
        query.into_iter().fold(head, SampleHead::query).with(&lines)
    })
}

proptest! {
    #[test]
    fn a_native_condition_has_the_result_of_the_interpreter(source in condition(), head in request()) {
        let (expression, names, _) = compile(&source).unwrap();
        let native = Condition::of(&expression, &names).expect("it is native");
        let program = Program::new(expression, names);
        with(&head, |attributes| {
            let native = native.holds(attributes);
            let interpreted = program.evaluate(attributes, program::truth);
            prop_assert_eq!(native.ok(), interpreted.ok(), "{}", &source);
            Ok(())
        })?;
    }

    #[test]
    fn a_native_value_is_that_of_the_interpreter(source in subject(), head in request()) {
        let (expression, names, _) = compile(source).unwrap();
        let attribute = native::text_of(&expression, &names).expect("it is native");
        let program = Program::new(expression, names);
        with(&head, |attributes| {
            let native = attribute.text(attributes).map(Cow::into_owned);
            prop_assert_eq!(native, program.evaluate(attributes, program::text).ok(), "{}", source);
            Ok(())
        })?;
    }
}

/// The plain comparisons that policies consist of do not need the interpreter.
#[test]
fn plain_comparisons_are_native() {
    let check = |source: &str, want: bool| {
        let native = matches!(Predicate::new(source).unwrap().0.form, Form::Native(_));
        assert_eq!(native, want, "{source}");
    };
    check("request.method == 'GET' && !request.url_path.startsWith('/health')", true);
    check("request.headers['x-a'] in ['a', 'b'] || 'x-b' in request.headers", true);
    check("source.remote_address != '192.0.2.1'", true);
    check("request.url_path.matches('^/api/')", true);
    check("request.method == request.host", false);
    check("request.size == 7", false);
    check("request.method in ['GET', 1]", false);
    check("request.headers['x-a'].startsWith('a') == true", false);
}

/// The policies here and the rules of `lite` are read by two parsers of one library: they agree on what both take.
#[test]
fn both_parsers_read_an_expression_alike() {
    let parse_by_first = |source: &str| cel::parser::Parser::new().enable_optional_syntax(true).parse(source);
    let shape = |expression: &IdedExpr| {
        format!("{:?}", expression.expr)
            .split("id: ")
            .map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned())
            .collect::<Vec<_>>()
    };
    for source in [
        "1 + 2 * 3 - 4 / 5 % 6",
        "a ? b : c ? d : e",
        "a && b && c || d && !e || -f < g",
        "request.headers['x'].startsWith(\"a\\n\\x41\\u00e9\") in [1, 2u, 3.5e1, b'a', r'\\n', null, true]",
        "[1, 2].map(x, x > 1, x + 1).filter(y, y in {'a': 1, 'b': [?c]}).exists(z, has(z.a))",
        "a.?b.orValue(c[?d])",
        "\"\"\"a\"b\"\"\" == 'ü' // comment",
    ] {
        let (first, second) = (parse_by_first(source).unwrap(), parse(source).unwrap());
        assert_eq!(shape(&first), shape(&second), "{source}");
    }
}
