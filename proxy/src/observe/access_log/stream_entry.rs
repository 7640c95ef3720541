//! The contents of an access log line about a connection that was passed on unread, or a flow of datagrams.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use tidegate_config::object::ObjectRef;

use super::entry::rfc3339;
use super::line::{LogLine, field};

/// The contents of a line about a connection or flow that has ended.
#[derive(Debug)]
pub(crate) struct StreamEntry<'a> {
    /// When it ended.
    pub(crate) time: SystemTime,
    /// `TCP` or `UDP`.
    pub(crate) protocol: &'static str,
    pub(crate) client: SocketAddr,
    /// The address of the bind.
    pub(crate) bind: SocketAddr,
    /// Bytes from the client to the endpoint.
    pub(crate) bytes_in: u64,
    /// Bytes from the endpoint to the client.
    pub(crate) bytes_out: u64,
    /// The numbers of datagrams of a flow, from the client to the endpoint, and back.
    pub(crate) datagrams: Option<[u64; 2]>,
    pub(crate) duration: Duration,
    /// The endpoint it was connected to.
    pub(crate) upstream: Option<SocketAddr>,
    /// The object of its route.
    pub(crate) object: Option<&'a ObjectRef>,
    /// Its outcome, as in the metrics `tidegate_stream_connections_total` and `tidegate_udp_flows_total`.
    pub(crate) outcome: &'a str,
}

impl StreamEntry<'_> {
    /// Writes the line in JSON. Fields that requests have too have the same names.
    ///
    /// # Errors
    /// If a value cannot be printed; a part of the line may have been written then.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let mut line = LogLine::begin(out, "time", &rfc3339(self.time)?);
        line.printed(field!("client"), Some(self.client.ip()))?;
        line.text(field!("protocol"), self.protocol)?;
        line.socket(field!("bind"), Some(self.bind))?;
        line.number(field!("bytes_in"), self.bytes_in)?;
        line.number(field!("bytes_out"), self.bytes_out)?;
        if let Some([up, down]) = self.datagrams {
            line.number(field!("datagrams_in"), up)?;
            line.number(field!("datagrams_out"), down)?;
        }
        line.milliseconds(field!("duration_ms"), Some(self.duration))?;
        line.socket(field!("upstream"), self.upstream)?;
        line.printed(field!("object"), self.object)?;
        line.text(field!("outcome"), self.outcome)?;
        line.end();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::object::{Kind, ObjectName};

    use super::*;

    #[test]
    fn a_line_is_json_with_the_fields_of_requests() {
        let object = ObjectRef::new(Kind::Service, ObjectName::new("deis", "deis-builder"));
        let entry = StreamEntry {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            protocol: "TCP",
            client: ([192, 0, 2, 1], 40_000).into(),
            bind: ([0, 0, 0, 0], 2222).into(),
            bytes_in: 10,
            bytes_out: 20_000_000_000,
            datagrams: None,
            duration: Duration::from_millis(1500),
            upstream: Some(([10, 0, 0, 1], 2223).into()),
            object: Some(&object),
            outcome: "closed",
        };
        let written = |entry: &StreamEntry<'_>| -> serde_json::Value {
            let mut line = Vec::new();
            entry.write(&mut line).unwrap();
            assert!(line.ends_with(b"\n"));
            serde_json::from_slice(&line).unwrap()
        };
        let mut want = serde_json::json!({
            "time": "2023-11-14T22:13:20.123Z", "client": "192.0.2.1", "protocol": "TCP", "bind": "0.0.0.0:2222",
            "bytes_in": 10, "bytes_out": 20_000_000_000_u64, "duration_ms": 1500.0, "upstream": "10.0.0.1:2223",
            "object": "Service deis/deis-builder", "outcome": "closed",
        });
        assert_eq!(written(&entry), want);
        let flow = StreamEntry { protocol: "UDP", datagrams: Some([3, 4]), ..entry };
        want["protocol"] = "UDP".into();
        (want["datagrams_in"], want["datagrams_out"]) = (3.into(), 4.into());
        assert_eq!(written(&flow), want);
    }
}
