//! The PROXY protocol, versions 1 and 2: the header with the client's address that a load balancer sends before the
//! first byte of a connection (<https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt>).
//!
//! The bytes after the header are TLS or HTTP, which other code reads from the socket, so nothing beyond the header is
//! taken.

use std::io;
use std::net::SocketAddr;

use ppp::{v1, v2};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// The length of a version 2 header's fixed part, which ends with the length of the rest.
const V2_FIXED: usize = 16;

/// The number of bytes that are read to distinguish the versions: shorter than the shortest header of both.
const BEGINNING: usize = v2::PROTOCOL_PREFIX.len();

/// The maximum length of a version 1 line, with its end (section 2.1).
const V1_MAX: usize = 107;

/// Version 2 and the command of a connection that the load balancer has opened for itself.
const LOCAL: u8 = 0x20;

/// The maximum length of the rest of a version 2 header. Addresses take 36 bytes of it, and 216 for UNIX sockets; cloud
/// providers add some hundreds, which may include the name in a client's certificate.
const V2_REST_MAX: usize = 4096;

/// The addresses of a connection in its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionAddresses {
    /// The source address.
    pub(crate) source: SocketAddr,
    /// The destination address.
    pub(crate) destination: SocketAddr,
}

impl From<v2::IPv4> for ConnectionAddresses {
    fn from(it: v2::IPv4) -> Self {
        let source = (it.source_address, it.source_port).into();
        Self { source, destination: (it.destination_address, it.destination_port).into() }
    }
}

impl From<v2::IPv6> for ConnectionAddresses {
    fn from(it: v2::IPv6) -> Self {
        let source = (it.source_address, it.source_port).into();
        Self { source, destination: (it.destination_address, it.destination_port).into() }
    }
}

/// The reason why a connection has no valid header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeaderFailure {
    /// The peer closed the connection.
    Closed,
    /// It did not arrive in time.
    Timeout,
    /// The first bytes are not those of a header.
    Missing,
    /// It begins like a header, but is invalid or too long.
    Malformed,
}

impl HeaderFailure {
    /// All reasons.
    pub(crate) const ALL: [Self; 4] = [Self::Closed, Self::Timeout, Self::Missing, Self::Malformed];

    /// Its name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::Missing => "missing",
            Self::Malformed => "malformed",
        }
    }
}

impl From<io::Error> for HeaderFailure {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

/// Reads the header of a new connection; `None` if it has no TCP addresses: the connection is the load balancer's own,
/// such as a health check, or the load balancer does not know them.
pub(crate) async fn read(stream: &mut TcpStream) -> Result<Option<ConnectionAddresses>, HeaderFailure> {
    let mut header = Vec::with_capacity(V1_MAX);
    while header.len() < BEGINNING {
        some(stream, &mut header, BEGINNING).await?;
        let so_far = |prefix: &[u8]| prefix.iter().zip(&header).all(|(want, got)| want == got);
        if !so_far(v1::PROTOCOL_PREFIX.as_bytes()) && !so_far(v2::PROTOCOL_PREFIX) {
            return Err(HeaderFailure::Missing);
        }
    }
    if header == v2::PROTOCOL_PREFIX { second(stream, header).await } else { first(stream, header).await }
}

/// Reads the rest of a version 1 line, whose length is unknown until its end.
async fn first(stream: &mut TcpStream, mut line: Vec<u8>) -> Result<Option<ConnectionAddresses>, HeaderFailure> {
    while !line.ends_with(b"\n") {
        let mut ahead = [0; V1_MAX];
        let room = ahead.get_mut(line.len()..).filter(|room| !room.is_empty()).ok_or(HeaderFailure::Malformed)?;
        let seen = stream.peek(room).await?;
        let until = memchr::memchr(b'\n', room.get(..seen).unwrap_or_default()).map_or(seen, |at| at + 1);
        let wanted = line.len() + until;
        some(stream, &mut line, wanted).await?;
    }
    let header = v1::Header::try_from(line.as_slice()).map_err(|_| HeaderFailure::Malformed)?;
    Ok(match header.addresses {
        v1::Addresses::Unknown => None,
        v1::Addresses::Tcp4(it) => Some(it.into()),
        v1::Addresses::Tcp6(it) => Some(it.into()),
    })
}

/// Reads the rest of a version 2 header, which has a length field.
async fn second(stream: &mut TcpStream, mut header: Vec<u8>) -> Result<Option<ConnectionAddresses>, HeaderFailure> {
    while header.len() < V2_FIXED {
        some(stream, &mut header, V2_FIXED).await?;
    }
    let [.., high, low] = *header else { return Err(HeaderFailure::Malformed) };
    let rest = usize::from(u16::from_be_bytes([high, low]));
    if rest > V2_REST_MAX {
        return Err(HeaderFailure::Malformed);
    }
    while header.len() < V2_FIXED + rest {
        some(stream, &mut header, V2_FIXED + rest).await?;
    }
    // In a header with the command LOCAL all else is ignored, including the address family (section 2.2).
    if header.get(v2::PROTOCOL_PREFIX.len()) == Some(&LOCAL) {
        return Ok(None);
    }
    let header = v2::Header::try_from(header.as_slice()).map_err(|_| HeaderFailure::Malformed)?;
    if header.protocol != v2::Protocol::Stream {
        return Ok(None);
    }
    Ok(match header.addresses {
        v2::Addresses::Unspecified | v2::Addresses::Unix(_) => None,
        v2::Addresses::IPv4(it) => Some(it.into()),
        v2::Addresses::IPv6(it) => Some(it.into()),
    })
}

/// Waits for at least one more byte, and takes no more than up to a length.
async fn some(stream: &mut TcpStream, header: &mut Vec<u8>, length: usize) -> Result<(), HeaderFailure> {
    let wanted = length.saturating_sub(header.len());
    match (&mut *stream).take(wanted as u64).read_buf(header).await? {
        0 => Err(HeaderFailure::Closed),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    const TCP4: ConnectionAddresses = ConnectionAddresses {
        source: SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)), 4711),
        destination: SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1)), 443),
    };

    /// Returns the result of reading these bytes, and the bytes left for later readers.
    async fn played(pieces: &[&[u8]]) -> (Result<Option<ConnectionAddresses>, HeaderFailure>, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = async {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.set_nodelay(true).unwrap();
            for piece in pieces {
                // A refused peer may be gone already.
                client.write_all(piece).await.ok();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            client.shutdown().await.ok();
            client
        };
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let read = read(&mut stream).await;
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
            (read, rest)
        };
        tokio::join!(client, server).1
    }

    /// The result is the same for all bytes at once and one by one (a long rest in larger pieces); later bytes stay
    /// unread.
    async fn check(header: &[u8], want: Result<Option<ConnectionAddresses>, HeaderFailure>) {
        let shown = header.escape_ascii().to_string();
        let whole = [header, b"GET / HTTP/1.1\r\n"].concat();
        let (got, rest) = played(&[&whole]).await;
        assert_eq!(got, want, "{shown}");
        if want.is_ok() {
            assert_eq!(rest, b"GET / HTTP/1.1\r\n", "{shown}");
        }
        let (begin, rest) = whole.split_at(whole.len().min(150));
        let pieces: Vec<&[u8]> = begin.chunks(1).chain(rest.chunks(500)).collect();
        let (got, rest) = played(&pieces).await;
        assert_eq!(got, want, "{shown}, byte by byte");
        if want.is_ok() {
            assert_eq!(rest, b"GET / HTTP/1.1\r\n", "{shown}, byte by byte");
        }
    }

    /// A version 2 header with this command, family and rest.
    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [v2::PROTOCOL_PREFIX, &[0x20 | command, family], &length, rest].concat()
    }

    const V4: [u8; 12] = [192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 0x01, 0xbb];

    #[tokio::test]
    async fn lines_of_the_first_version() {
        let tcp6 = ConnectionAddresses {
            source: "[2001:db8::7]:4711".parse().unwrap(),
            destination: "[::1]:443".parse().unwrap(),
        };
        check(b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n", Ok(Some(TCP4))).await;
        check(b"PROXY TCP6 2001:db8::7 ::1 4711 443\r\n", Ok(Some(tcp6))).await;
        check(b"PROXY UNKNOWN\r\n", Ok(None)).await;
        check(b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", Ok(None)).await;
        for line in [
            "PROXY TCP4 192.0.2.7 198.51.100.1 4711\r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 4711 65536\r\n",
            "PROXY TCP4 192.0.2.700 198.51.100.1 4711 443\r\n",
            "PROXY TCP4 2001:db8::7 ::1 4711 443\r\n",
            "PROXY UDP4 192.0.2.7 198.51.100.1 4711 443\r\n",
            "PROXYTCP4 192.0.2.7 198.51.100.1 4711 443\r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1\0 4711 443\r\n",
        ] {
            check(line.as_bytes(), Err(HeaderFailure::Malformed)).await;
        }
        check(format!("PROXY UNKNOWN {}\r\n", "x".repeat(200)).as_bytes(), Err(HeaderFailure::Malformed)).await;
    }

    #[tokio::test]
    async fn headers_of_the_second_version() {
        let v6: Vec<u8> = [
            "2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets().as_slice(),
            &std::net::Ipv6Addr::LOCALHOST.octets(),
            &[0x12, 0x67, 0x01, 0xbb],
        ]
        .concat();
        let tcp6 = ConnectionAddresses {
            source: "[2001:db8::7]:4711".parse().unwrap(),
            destination: "[::1]:443".parse().unwrap(),
        };
        check(&binary(1, 0x11, &V4), Ok(Some(TCP4))).await;
        check(&binary(1, 0x21, &v6), Ok(Some(tcp6))).await;
        // The name of an AWS endpoint after the addresses, and much padding.
        let endpoint = [V4.as_slice(), &[0xea, 0, 5], b"\x01vpce"].concat();
        check(&binary(1, 0x11, &endpoint), Ok(Some(TCP4))).await;
        let padded = [V4.as_slice(), &[0x04, 0x0f, 0x00], &[0; 0xf00]].concat();
        check(&binary(1, 0x11, &padded), Ok(Some(TCP4))).await;
        // A health check of the load balancer itself, with and without addresses; unknown addresses; and UDP.
        check(&binary(0, 0x00, &[]), Ok(None)).await;
        check(&binary(0, 0x11, &V4), Ok(None)).await;
        check(&binary(0, 0x11, &[]), Ok(None)).await;
        check(&binary(0, 0x77, b"anything"), Ok(None)).await;
        check(&binary(1, 0x00, &[]), Ok(None)).await;
        check(&binary(1, 0x12, &V4), Ok(None)).await;
        check(&binary(1, 0x31, &[0; 216]), Ok(None)).await;
        check(&binary(2, 0x11, &V4), Err(HeaderFailure::Malformed)).await;
        check(&binary(1, 0x41, &V4), Err(HeaderFailure::Malformed)).await;
        check(&binary(1, 0x11, &V4[..8]), Err(HeaderFailure::Malformed)).await;
        check(&binary(1, 0x11, &[0; V2_REST_MAX + 1]), Err(HeaderFailure::Malformed)).await;
        let first = [v2::PROTOCOL_PREFIX, &[0x11, 0x11, 0, 12], &V4].concat();
        check(&first, Err(HeaderFailure::Malformed)).await;
    }

    #[tokio::test]
    async fn other_bytes_are_refused_at_the_first_that_differs() {
        for other in ["GET / HTTP/1.1\r\n", "\x16\x03\x01", "\r\n\r\n\0\rx", "PROXX", "proxy tcp4 ", "x"] {
            check(other.as_bytes(), Err(HeaderFailure::Missing)).await;
        }
        for cut in ["", "PROXY", "PROXY TCP4 192.0", "\r\n\r\n\0\r\nQUIT\n\x21"] {
            assert_eq!(played(&[cut.as_bytes()]).await.0, Err(HeaderFailure::Closed), "{cut:?}");
        }
    }

    #[tokio::test]
    async fn no_bytes_cause_a_panic() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let kept = random.usize(..16);
            let mut header =
                if random.bool() { binary(1, 0x11, &V4) } else { b"PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\n".to_vec() };
            header.iter_mut().skip(kept).for_each(|byte| {
                if random.u8(..8) == 0 {
                    *byte = random.u8(..);
                }
            });
            header.truncate(random.usize(..=header.len()));
            drop(played(&[&header]).await);
        }
    }
}
