//! Request heads: request lines, hosts, header lines, valid and invalid, and their maximum size.

use super::case::Case;

pub const METHODS: &[&str] = &[
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "OPTIONS",
    "PATCH",
    "TRACE",
    "CONNECT",
    "PURGE",
    "M-SEARCH",
    "get",
    "Get",
    "G@T",
    "G|T",
    "GE T",
    "",
    "PRI",
    "SSTP_DUPLEX_POST",
    "A",
];

pub const TARGETS: &[&str] = &[
    "/",
    "/a/b?c=d",
    "/a//b",
    "//",
    "//a.test/x",
    "/a/./b",
    "/a/../b",
    "/../x",
    "/a/..",
    "/a/%2e%2e/b",
    "/a/%2E/b",
    "/a/..%2fb",
    "/a/..;/b",
    "/a/..;",
    "/a/%2e%2e;x=y/b",
    "/a/..\\b",
    "/a\\..\\b",
    "/a/..%5Cb",
    "/a;b/c..d/..e",
    "/a%5cb",
    "/a%2Fb",
    "/%61",
    "/%zz",
    "/%",
    "/%2",
    "/%00",
    "/%c3%a9",
    "/a;p=1/b",
    "/?",
    "/?a?b",
    "/a?../b",
    "/a?x=%zz",
    "/a#b",
    "/a b",
    "/\u{fc}",
    "/a\\b",
    "/{x}",
    "/|",
    "/\"x\"",
    "/<x>",
    "/`^",
    "/a\tb",
    "*",
    "a",
    "",
    "?a",
    "http://a.test/x?y",
    "http://a.test",
    "HTTP://A.TEST/x",
    "http://other.test/",
    "http://a.test:80/",
    "http://u@a.test/",
    "https://a.test/",
    "ftp://a.test/",
    "a.test:80",
    "http:///x",
    "http:/x",
    "/old/x/../y",
    "/old%2Fx",
    "/o%6Cd/b%2Fc",
    "//old/b%2fc//d",
    "/old//x?y",
    "/old",
    "/OLD/x",
    "/probe?x",
];

const HOSTS: &[&str] = &[
    "",
    "Host:\r\n",
    "Host: \r\n",
    "Host:a.test\r\n",
    "Host:  a.test\r\n",
    "Host:\ta.test\t\r\n",
    "host: a.test\r\n",
    "HOST: a.test\r\n",
    "Host: A.Test\r\n",
    "Host: a.test.\r\n",
    "Host: a.test:80\r\n",
    "Host: a.test:8080\r\n",
    "Host: a.test:\r\n",
    "Host: a.test:99999\r\n",
    "Host: a.test:x\r\n",
    "Host: u@a.test\r\n",
    "Host: a/b\r\n",
    "Host: a b\r\n",
    "Host: a,b\r\n",
    "Host: a.test, a.test\r\n",
    "Host: a.test\r\nHost: a.test\r\n",
    "Host: a.test\r\nhost: b.test\r\n",
    "Host : a.test\r\n",
    " Host: a.test\r\n",
    "Host: other.test\r\n",
    "Host: [::1]\r\n",
    "Host: [::1]:80\r\n",
    "Host: 127.0.0.1\r\n",
    "Host: a..test\r\n",
    "Host: -a.test\r\n",
    "Host: a_b.test\r\n",
    "Host: *\r\n",
    "Host: %61.test\r\n",
    "Host: \u{fc}.test\r\n",
    "Host: a.test\u{0}\r\n",
    "Host: a.test\r\nX-Host: b.test\r\n",
    "X: y\r\nHost: a.test\r\n",
];

const VERSIONS: &[&str] =
    &["HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.2", "http/1.1", "HTTP/1.", "HTTP/11", ""];

/// Header lines, valid and invalid.
pub const SYNTAX: &[&str] = &[
    "X: y\n",
    "X: y\nContent-Length: 44\r\n",
    "X: y\r\r\n",
    "X: y\rz\r\n",
    "X:\r\n",
    "X: \r\n",
    "X:y\r\n",
    "X:\t y \t\r\n",
    "X : y\r\n",
    "X\t: y\r\n",
    " X: y\r\n",
    "X y\r\n",
    ": y\r\n",
    ":\r\n",
    "X: a\r\n b\r\n",
    "X: a\r\n\tb\r\n",
    "X: a\u{0}b\r\n",
    "X: a\u{1}b\r\n",
    "X: a\u{7f}b\r\n",
    "X: a\u{fc}b\r\n",
    "X\u{fc}: y\r\n",
    "X(: y\r\n",
    "X/Y: z\r\n",
    "X\"Y: z\r\n",
    "!#$%&'*+-.^_`|~: z\r\n",
    "X: \"a\\\"b\"\r\n",
    "X: a:b:c\r\n",
    "X: a\tb\r\n",
    "X: a  b\r\n",
    "9: y\r\n",
    "_: y\r\n",
    "X_Y: z\r\n",
    "\r\n",
    "\n",
    "X: y\r\n\nGET /hidden HTTP/1.1\r\nHost: a.test\r\n",
    "X: \r\n\r\nGET /second HTTP/1.1\r\nHost: a.test\r\n",
    "x-lower: 1\r\nX-UPPER: 2\r\nX-Mixed-cAse: 3\r\n",
];

/// Request lines, and bytes before them.
const LINES: &[&str] = &[
    "GET  / HTTP/1.1\r\n",
    "GET /  HTTP/1.1\r\n",
    " GET / HTTP/1.1\r\n",
    "GET\t/\tHTTP/1.1\r\n",
    "GET / HTTP/1.1 \r\n",
    "GET / HTTP/1.1\n",
    "GET / HTTP/1.1\r\r\n",
    "\r\nGET / HTTP/1.1\r\n",
    "\r\n\r\nGET / HTTP/1.1\r\n",
    "\nGET / HTTP/1.1\r\n",
    "\rGET / HTTP/1.1\r\n",
    "GET /\r\n",
    "GET\r\n",
    "/ HTTP/1.1\r\n",
    "GET / HTTP/1.1\u{0}\r\n",
    "GET /\u{0} HTTP/1.1\r\n",
    "\u{feff}GET / HTTP/1.1\r\n",
    "HTTP/1.1 200 OK\r\n",
    "GET / HTTPS/1.1\r\n",
    "GET / HTTP/1.1,\r\n",
];

pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    first_lines(&mut cases);
    hosts(&mut cases);
    syntax(&mut cases);
    sizes(&mut cases);
    cases
}

fn first_lines(cases: &mut Vec<Case>) {
    for target in TARGETS {
        for method in ["GET", "HEAD", "OPTIONS"] {
            let name = format!("{method} of {target}");
            cases.push(Case::new(&name, format!("{method} {target} HTTP/1.1\r\nHost: a.test\r\n\r\n")));
            cases.push(Case::new(
                format!("{name}, edited"),
                format!("{method} {target} HTTP/1.1\r\nHost: b.test\r\n\r\n"),
            ));
        }
    }
    for method in METHODS {
        for host in ["a.test", "b.test", "g.test"] {
            let bytes = format!("{method} /old/x HTTP/1.1\r\nHost: {host}\r\n\r\n");
            cases.push(Case::new(format!("method {method} on {host}"), bytes));
        }
    }
    for version in VERSIONS {
        for lines in ["", "Connection: keep-alive\r\n", "Connection: close\r\n"] {
            let bytes = format!("GET /a {version}\r\nHost: a.test\r\n{lines}\r\n");
            cases.push(Case::new(format!("version {version:?} with {lines:?}"), bytes));
        }
    }
    for line in LINES {
        cases.push(Case::new(format!("first line {line:?}"), format!("{line}Host: a.test\r\n\r\n")));
    }
    let origins = [
        "https://o.test",
        "https://other.test",
        "null",
        "https://a.w.test",
        "https://evil.test/.w.test",
        "HTTPS://O.test:443",
        "https://o.test.",
        "https://o.test https://o.test",
    ];
    for origin in origins {
        for method in ["OPTIONS", "GET", "HEAD", "POST"] {
            for asked in ["", "Access-Control-Request-Method: PUT\r\nAccess-Control-Request-Headers: x-a\r\n"] {
                for host in ["o.test", "p.test"] {
                    let bytes = format!("{method} /x HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n{asked}\r\n");
                    cases.push(Case::new(format!("{method} on {host} from {origin} with {asked:?}"), bytes).native());
                }
            }
        }
    }
    for host in ["n.test", "x.test", "g.test", "unknown.test", "l.test", "m.test", "s.test", "f.test"] {
        for method in ["GET", "HEAD"] {
            let bytes = format!("{method} /x HTTP/1.1\r\nHost: {host}\r\n\r\n");
            cases.push(Case::new(format!("{method} on {host}"), bytes).native());
        }
        let body = "POST /x HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\n\r\nhello".replace("HOST", host);
        cases.push(Case::new(format!("POST on {host}"), body).native());
        let chunked = "POST /x HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        cases.push(Case::new(format!("POST in chunks on {host}"), chunked.replace("HOST", host)).native());
    }
}

fn hosts(cases: &mut Vec<Case>) {
    for lines in HOSTS {
        for version in ["1.1", "1.0"] {
            let bytes = format!("GET /a HTTP/{version}\r\n{lines}\r\n");
            cases.push(Case::new(format!("HTTP/{version} with {lines:?}"), bytes));
        }
    }
}

fn syntax(cases: &mut Vec<Case>) {
    for lines in SYNTAX {
        cases.push(Case::get(format!("line {lines:?}"), "a.test", "/", lines));
        cases.push(Case::get(format!("line {lines:?}, edited"), "b.test", "/old", lines));
        let first = format!("GET / HTTP/1.1\r\n{lines}Host: a.test\r\n\r\n");
        cases.push(Case::new(format!("line {lines:?} before the host"), first));
    }
}

fn sizes(cases: &mut Vec<Case>) {
    // The Host line is counted as well.
    for count in [62, 63, 64, 65, 126, 127, 128, 129, 255, 256, 300] {
        for (host, target) in [("a.test", "/"), ("b.test", "/old")] {
            let lines: String = (0..count).map(|n| format!("X-{n}: {n}\r\n")).collect();
            let case = Case::get(format!("{count} lines on {host}"), host, target, &lines);
            cases.push(if count < 64 { case.native() } else { case });
        }
    }
    for bytes in [1_000, 4_000, 8_000, 16_000, 32_000, 65_000, 66_000, 70_000] {
        let long = "x".repeat(bytes);
        cases.push(Case::get(format!("a value of {bytes} bytes"), "a.test", "/", &format!("X: {long}\r\n")));
        cases.push(Case::get(format!("a name of {bytes} bytes"), "a.test", "/", &format!("X{long}: y\r\n")));
        cases.push(Case::get(format!("a target of {bytes} bytes"), "a.test", &format!("/{long}"), ""));
        cases.push(Case::get(format!("a query of {bytes} bytes"), "b.test", &format!("/old?{long}"), ""));
        cases.push(Case::new(
            format!("a method of {bytes} bytes"),
            format!("{long} / HTTP/1.1\r\nHost: a.test\r\n\r\n"),
        ));
    }
}
