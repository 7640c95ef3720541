//! The Deis router in place of Tidegate: the same objects become a configuration of nginx, in the router's way.
//!
//! It is written from the behaviour of the router, including its bugs. Two things differ: requests go to the endpoints
//! of an application instead of to its ClusterIP, which does not exist here; and the access log is off.
//!
//! There are placeholders for parts that are not compared yet: see the default host and the server names below.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use base64::Engine as _;
use serde_json::Value;

use crate::world::{PREFIX, named};

/// The page of applications in maintenance.
const MAINTENANCE: &str = "<html><head><title>Site Maintenance</title></head></html>";

/// The media types that are compressed in addition to `text/html` if the Deployment names none.
const GZIP_TYPES: &str = "application/atom+xml application/javascript application/json application/rss+xml \
    application/vnd.ms-fontobject application/x-font-ttf application/x-web-app-manifest+json application/xhtml+xml \
    application/xml font/opentype image/svg+xml image/x-icon text/css text/plain text/x-component";

/// The addresses and the folder of nginx.
pub(crate) struct Places<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
}

/// Annotations of one object under one context.
struct Said<'a>(&'a Value, &'static str);

impl<'a> Said<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        self.0["metadata"]["annotations"][format!("{PREFIX}{}{key}", self.1)].as_str()
    }

    fn or(&self, key: &str, default: &'a str) -> &'a str {
        self.text(key).unwrap_or(default)
    }

    /// Reads a boolean, which the platform writes in any case.
    fn is(&self, key: &str) -> bool {
        self.text(key).is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    fn list(&self, key: &str) -> Vec<&'a str> {
        self.text(key).map_or_else(Vec::new, |text| text.split(',').map(str::trim).collect())
    }
}

/// An application with the fields that the router reads.
struct App<'a> {
    said: Said<'a>,
    namespace: &'a str,
    domains: Vec<&'a str>,
    /// The upstream; `None` when no endpoint is ready.
    upstream: Option<String>,
}

/// The files of a certificate.
struct Files {
    chain: String,
    key: String,
}

/// Writes the configuration.
pub(crate) struct Router<'a> {
    objects: &'a [Value],
    places: &'a Places<'a>,
    said: Said<'a>,
    text: String,
}

impl<'a> Router<'a> {
    /// The configuration of nginx for these objects, with the files that it names.
    pub(crate) fn configuration(objects: &'a [Value], places: &'a Places<'a>) -> String {
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("a router");
        let mut router = Self { objects, places, said: Said(deployment, "nginx."), text: String::new() };
        std::fs::write(places.folder.join("maintenance.html"), MAINTENANCE).expect("a page");
        router.global();
        router.gzip();
        router.maps();
        router.default_host();
        let apps = router.apps();
        for app in &apps {
            for domain in &app.domains {
                router.host(&apps, app, domain);
            }
        }
        router.text + "}\n"
    }

    fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    fn global(&mut self) {
        let folder = self.places.folder.display();
        let _infallible = write!(
            self.text,
            "daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log error;
events {{ worker_connections 768; }}
http {{
access_log off; default_type application/octet-stream; tcp_nodelay on;
client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
server_names_hash_max_size 512; server_names_hash_bucket_size 64;
"
        );
        self.line(format!("keepalive_timeout {};", self.said.or("defaultTimeout", "1300s")));
        self.line(format!("client_max_body_size {};", self.said.or("bodySize", "1m")));
        let (count, size) =
            (self.said.or("largeHeaderBuffersCount", "4"), self.said.or("largeHeaderBuffersSize", "32k"));
        self.line(format!("large_client_header_buffers {count} {size};"));
        for network in self.said.or("proxyRealIpCidrs", "10.0.0.0/8").split(',') {
            self.line(format!("set_real_ip_from {};", network.trim()));
        }
        let header = if self.proxy_protocol() { "proxy_protocol" } else { "X-Forwarded-For" };
        self.line(format!("real_ip_header {header}; real_ip_recursive on;"));
    }

    fn gzip(&mut self) {
        if self.said.text("gzip.enabled").is_some_and(|text| text.eq_ignore_ascii_case("false")) {
            return;
        }
        for (directive, key, default) in [
            ("gzip_comp_level", "compLevel", "5"),
            ("gzip_disable", "disable", "msie6"),
            ("gzip_http_version", "httpVersion", "1.1"),
            ("gzip_min_length", "minLength", "256"),
            ("gzip_types", "types", GZIP_TYPES),
            ("gzip_proxied", "proxied", "any"),
            ("gzip_vary", "vary", "on"),
        ] {
            let value = self.said.or(&format!("gzip.{key}"), default);
            // An expression may contain characters that would end a directive.
            let quote = if key == "disable" { "\"" } else { "" };
            self.line(format!("{directive} {quote}{value}{quote};"));
        }
        self.line("gzip on;");
    }

    fn maps(&mut self) {
        let mut hsts = format!("max-age={}", self.said.or("ssl.hsts.maxAge", "15552000"));
        for (key, directive) in [("includeSubDomains", "includeSubDomains"), ("preload", "preload")] {
            if self.said.is(&format!("ssl.hsts.{key}")) {
                hsts = format!("{hsts}; {directive}");
            }
        }
        let _infallible = write!(
            self.text,
            r#"map $http_upgrade $for_connection {{ default upgrade; "" close; }}
map $http_x_forwarded_proto $told_scheme {{ default $scheme; "~^(?:.*, ?)?(?<last>http|https|ws|wss)$" $last; }}
map $scheme $access_scheme {{ default $told_scheme; https https; }}
map $access_scheme $insecure {{ default 1; https ""; wss ""; }}
map $access_scheme $secure_scheme {{ default https; ws wss; }}
map $access_scheme $hsts {{ default ""; https "{hsts}"; }}
map $scheme $own_port {{ default 80; https 443; }}
map $http_x_forwarded_port $forwarded_port {{ default $http_x_forwarded_port; "" $own_port; }}
map $http_x_correlation_id $correlation_id {{ default "$http_x_correlation_id,$request_id"; "" $request_id; }}
"#
        );
    }

    fn proxy_protocol(&self) -> bool {
        self.said.is("useProxyProtocol")
    }

    fn listen(&self, tls: bool, default: bool) -> String {
        let address = if tls { self.places.https } else { self.places.http };
        let mut line = format!("listen {address}");
        if default {
            line += " default_server";
        }
        if tls {
            line += " ssl";
            if self.said.text("http2Enabled").is_none_or(|text| text.eq_ignore_ascii_case("true")) {
                line += " http2";
            }
        }
        if self.proxy_protocol() {
            line += " proxy_protocol";
        }
        line + ";"
    }

    /// The server of unknown hosts. A default service would replace the 404 of plain HTTP; it is not compared yet.
    fn default_host(&mut self) {
        let files = self.certificate("deis/deis-router-platform-cert").unwrap_or_else(|| self.built_in());
        let (plain, tls) = (self.listen(false, true), self.listen(true, true));
        let referrer = self.said.text("referrerPolicy");
        let referrer = referrer.map_or_else(String::new, |policy| format!("add_header Referrer-Policy {policy};"));
        let _infallible = write!(
            self.text,
            "server {{
{plain}
{tls}
server_name _; {referrer}
ssl_certificate {}; ssl_certificate_key {};
location ~ ^/healthz/?$ {{ default_type text/plain; return 200; }}
location / {{ return 404; }}
}}
",
            files.chain, files.key
        );
    }

    /// One server for a domain of an application.
    fn host(&mut self, apps: &[App<'_>], app: &App<'_>, domain: &str) {
        self.line("server {");
        let plain = self.listen(false, false);
        self.line(plain);
        let mapped = app.said.list("certificates").into_iter().filter_map(|entry| entry.split_once(':'));
        let mapped = mapped.filter(|(of, _)| *of == domain && domain.contains('.')).map(|(_, name)| name).next();
        let files = match mapped {
            Some(name) => self.certificate(&format!("{}/{name}-cert", app.namespace)),
            None if domain.contains('.') => None,
            None => self.certificate("deis/deis-router-platform-cert"),
        };
        if let Some(Files { chain, key }) = files {
            let tls = self.listen(true, false);
            self.line(format!("{tls} ssl_certificate {chain}; ssl_certificate_key {key};"));
        }
        let name = self.server_name(domain);
        self.line(format!("server_name {name};"));
        self.whitelist(app);
        if app.said.is("maintenance") {
            let folder = self.places.folder.display().to_string();
            self.line("error_page 503 @maintenance;");
            self.line(format!("location @maintenance {{ root {folder}; rewrite ^ /maintenance.html break; }}"));
        }
        for other in apps {
            let host = other
                .said
                .text("proxyDomain")
                .filter(|host| !other.said.list("proxyLocations").is_empty() && app.domains.contains(host));
            // The first application that lists it.
            let first = host.and_then(|host| apps.iter().find(|first| first.domains.contains(&host)));
            if first.is_some_and(|first| std::ptr::eq(first.said.0, app.said.0)) {
                for path in other.said.list("proxyLocations") {
                    self.location(app, other, path);
                }
            }
        }
        self.location(app, app, "/");
        self.line("}");
    }

    /// The server name of a domain. Regular expressions are not compared yet.
    fn server_name(&self, domain: &str) -> String {
        if domain.contains('.') {
            return domain.to_owned();
        }
        match self.said.text("platformDomain") {
            // This applies also if a comma at the end makes an empty domain name.
            Some(platform) => format!("{domain}.{platform}"),
            None => format!(r"~^{domain}\.(?<rest>.+)$"),
        }
    }

    fn whitelist(&mut self, app: &App<'_>) {
        let (default, own) = (self.said.list("defaultWhitelist"), app.said.list("whitelist"));
        if default.is_empty() && own.is_empty() && !self.said.is("enforceWhitelists") {
            return;
        }
        let replaces = self.said.text("whitelistMode") == Some("override") && !own.is_empty();
        let default = if replaces { Vec::new() } else { default };
        for network in default.into_iter().chain(own) {
            self.line(format!("allow {network};"));
        }
        self.line("deny all;");
    }

    /// A path of a host: `host` is the application that owns it, `app` the one that gets its requests.
    fn location(&mut self, host: &App<'_>, app: &App<'_>, path: &str) {
        self.line(format!("location {path} {{"));
        if self.said.is("requestIDs") {
            self.line(
                "add_header X-Request-Id $request_id always; add_header X-Correlation-Id $correlation_id always;",
            );
        }
        match app.upstream.as_ref().filter(|_| !app.said.is("maintenance")) {
            None => self.line("return 503;"),
            Some(upstream) => {
                let upstream = upstream.clone();
                self.proxied(host, app, &upstream);
            }
        }
        self.line("}");
    }

    fn proxied(&mut self, host: &App<'_>, app: &App<'_>, upstream: &str) {
        let hsts = self.said.is("ssl.hsts.enabled");
        if hsts {
            self.line("add_header Strict-Transport-Security $hsts always;");
        }
        let policy = host.said.text("referrerPolicy").or(self.said.text("referrerPolicy"));
        if let Some(policy) = policy.filter(|policy| *policy != "none") {
            self.line(format!("add_header Referrer-Policy {policy};"));
        }
        if hsts || self.said.is("ssl.enforce") || app.said.is("ssl.enforce") {
            self.line("if ($insecure) { return 301 $secure_scheme://$host$request_uri; }");
        }
        let tcp = app.said.or("tcpTimeout", self.said.or("defaultTimeout", "1300s"));
        let connect = app.said.or("connectTimeout", "30s");
        let _infallible = write!(
            self.text,
            "proxy_connect_timeout {connect}; proxy_send_timeout {tcp}; proxy_read_timeout {tcp};
proxy_buffering {}; proxy_buffers 8 4k; proxy_buffer_size 4k; proxy_busy_buffers_size 8k;
proxy_http_version 1.1; proxy_redirect off;
proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr;
proxy_set_header X-Forwarded-Proto $access_scheme; proxy_set_header X-Forwarded-Port $forwarded_port;
proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $for_connection; proxy_set_header Early-Data \"\";
",
            if self.said.is("proxyBuffers.enabled") { "on" } else { "off" }
        );
        if self.said.is("requestIDs") {
            self.line("proxy_set_header X-Request-Id $request_id; proxy_set_header X-Correlation-Id $correlation_id;");
        }
        if self.said.is("requestStartHeader") && !host.said.is("disableRequestStartHeader") {
            self.line("proxy_set_header X-Request-Start t=$msec;");
        }
        self.line(format!("proxy_pass http://{upstream};"));
    }

    /// The applications in the order of the API, which is that of their names.
    fn apps(&self) -> Vec<App<'a>> {
        let services = self.objects.iter().filter(|object| object["kind"] == "Service");
        let routable = services.filter(|object| object["metadata"]["labels"][format!("{PREFIX}routable")] == "true");
        let mut apps: Vec<App<'a>> = routable
            .map(|object| {
                let said = Said(object, "");
                let namespace = object["metadata"]["namespace"].as_str().expect("a namespace");
                App { domains: said.list("domains"), said, namespace, upstream: self.upstream(&named(object)) }
            })
            .collect();
        apps.sort_by_key(|app| named(app.said.0));
        apps
    }

    fn upstream(&self, name: &str) -> Option<String> {
        let slice = self.objects.iter().find(|object| object["kind"] == "EndpointSlice" && named(object) == name)?;
        let address = slice["endpoints"][0]["addresses"][0].as_str()?;
        Some(format!("{address}:{}", slice["ports"][0]["port"]))
    }

    /// The files of a Secret's certificate, if it exists.
    fn certificate(&self, name: &str) -> Option<Files> {
        let secret = self.objects.iter().find(|object| object["kind"] == "Secret" && named(object) == name)?;
        let pem = |key: &str| {
            let text = secret["data"][key].as_str()?;
            base64::engine::general_purpose::STANDARD.decode(text).ok()
        };
        Some(self.files(&name.replace('/', "_"), &pem("tls.crt")?, &pem("tls.key")?))
    }

    /// The router's fallback certificate.
    fn built_in(&self) -> Files {
        let made = rcgen::generate_simple_self_signed(["deis.rocks".to_owned()]).expect("a certificate");
        self.files("built-in", made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes())
    }

    fn files(&self, name: &str, chain: &[u8], key: &[u8]) -> Files {
        let write = |ending: &str, bytes: &[u8]| {
            let path = self.places.folder.join(format!("{name}.{ending}"));
            std::fs::write(&path, bytes).expect("a file");
            path.display().to_string()
        };
        Files { chain: write("crt", chain), key: write("key", key) }
    }
}
