//! Threads, logs, and the name of the process in forwarded requests.

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_config::model::LogFormat;
use tidegate_proxy::{AccessLogSink, Driver, LimitHeaders, LoopToken};
use tracing_subscriber::EnvFilter;

use super::status::switch;
use super::{InvalidValue, Mode};
use crate::args::ProcessArgs;

/// A higher number of threads is taken for a typing error.
const THREADS_MAX: usize = 1024;

/// The format of the process's own log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogForm {
    /// Readable text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Threads and logs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Process {
    /// Traffic threads, at least 1; `None` for one per CPU.
    pub(crate) threads: Option<usize>,
    /// The name of this edge in `CDN-Loop`.
    pub(crate) loop_token: LoopToken,
    pub(crate) access_log: AccessLogSink,
    /// The format of its lines; `None` for JSON.
    pub(crate) access_log_format: Option<Arc<LogFormat>>,
    /// The driver of requests.
    pub(crate) driver: Driver,
    /// `true` if responses without a server name get that of the edge.
    pub(crate) server_header: bool,
    /// Whether responses tell clients their rate limits.
    pub(crate) limit_headers: LimitHeaders,
    /// The filter directives of the log; they are valid.
    pub(crate) log_level: String,
    pub(crate) log_form: LogForm,
}

impl Process {
    pub(super) fn read(args: &ProcessArgs, mode: Mode) -> Result<Self, InvalidValue> {
        let dev = mode == Mode::Dev;
        let access_log = match args.access_log.as_deref() {
            None if dev => AccessLogSink::Off,
            Some("off") => AccessLogSink::Off,
            None | Some("stdout") => AccessLogSink::Stdout,
            Some("") => return Err(InvalidValue::new("--access-log", "", "names no file")),
            Some(path) => AccessLogSink::File(PathBuf::from(path)),
        };
        let access_log_format = log_format(&args.access_log_format)?;
        let driver = match args.driver.as_str() {
            "both" => Driver::Both,
            "pingora" => Driver::Pingora,
            other => return Err(InvalidValue::new("--driver", other, "is neither both nor pingora")),
        };
        let server_header = switch("--server-header", &args.server_header)?;
        let limit_headers = match args.limit_headers.as_str() {
            "off" => LimitHeaders::Off,
            "draft" => LimitHeaders::Draft,
            other => return Err(InvalidValue::new("--limit-headers", other, "is neither off nor draft")),
        };
        let log_form = log_form(args.log_form.as_deref().unwrap_or(if dev { "text" } else { "json" }))?;
        let log_level = log_level(args.log_level.as_deref().unwrap_or(if dev { "warn" } else { "info" }))?;
        let threads = args.threads.as_deref().map(threads).transpose()?;
        let loop_token =
            args.loop_token.parse().map_err(|why| InvalidValue::new("--loop-token", &args.loop_token, why))?;
        Ok(Self {
            threads,
            loop_token,
            access_log,
            access_log_format,
            driver,
            server_header,
            limit_headers,
            log_level,
            log_form,
        })
    }
}

/// Parses the format of the process's own log.
pub(super) fn log_form(text: &str) -> Result<LogForm, InvalidValue> {
    match text {
        "text" => Ok(LogForm::Text),
        "json" => Ok(LogForm::Json),
        other => Err(InvalidValue::new("--log-form", other, "is neither text nor json")),
    }
}

/// Checks the filter directives of the log.
pub(super) fn log_level(text: &str) -> Result<String, InvalidValue> {
    EnvFilter::builder().parse(text).map_err(|why| InvalidValue::new("--log-level", text, why))?;
    Ok(text.to_owned())
}

fn log_format(text: &str) -> Result<Option<Arc<LogFormat>>, InvalidValue> {
    if text == "json" {
        return Ok(None);
    }
    let format = match LogFormat::named(text) {
        Some(format) => format,
        // A word alone would enable every line.
        None if !text.contains('$') => {
            let why = "is neither json, combined nor deis, and has no variable such as $status";
            return Err(InvalidValue::new("--access-log-format", text, why));
        }
        None => LogFormat::parse(text).map_err(|why| InvalidValue::new("--access-log-format", text, why))?,
    };
    Ok(Some(Arc::new(format)))
}

fn threads(text: &str) -> Result<usize, InvalidValue> {
    let count: usize = text.parse().map_err(|why| InvalidValue::new("--threads", text, why))?;
    if (1..=THREADS_MAX).contains(&count) {
        Ok(count)
    } else {
        Err(InvalidValue::new("--threads", text, format_args!("is not between 1 and {THREADS_MAX}")))
    }
}
