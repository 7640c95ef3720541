//! The UDP sockets for clients, and the addresses on both ends of a datagram.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd as _;

use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// The requested size of the kernel's receive buffer of such a socket, in bytes.
const RECEIVE_BUFFER: usize = 1 << 20;

/// The size of the control message with the destination address of a datagram.
const CONTROL_BYTES: usize = 128;

/// A socket of a bind.
#[derive(Debug)]
pub(crate) struct ClientSocket {
    socket: UdpSocket,
    address: SocketAddr,
}

/// A received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Received {
    /// Its length in bytes.
    pub(super) len: usize,
    /// Its source address.
    pub(super) client: SocketAddr,
    /// Its destination address, which is the source address of answers.
    pub(super) local: IpAddr,
}

/// Opens a socket for clients whose address other threads can share (`SO_REUSEPORT`).
///
/// # Errors
/// Those of the operating system.
pub(crate) fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = unbound(address)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    if address.ip().is_unspecified() {
        match address {
            SocketAddr::V4(_) => setsockopt(&socket, Ipv4PacketInfo, &true)?,
            SocketAddr::V6(_) => setsockopt(&socket, Ipv6RecvPacketInfo, &true)?,
        }
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Checks whether another process uses an address, as [`crate::listen::sockets::probe`] does for connections.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if one does, and others of the operating system.
pub(crate) fn probe(address: SocketAddr) -> io::Result<()> {
    unbound(address)?.bind(&address.into())
}

/// Without `SO_REUSEADDR`: in UDP that would let a second socket take the datagrams of the first.
fn unbound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if let SocketAddr::V6(address) = address {
        socket.set_only_v6(*address.ip() != Ipv6Addr::UNSPECIFIED)?;
    }
    Ok(socket)
}

/// A socket connected to an endpoint, which receives from no other address.
///
/// # Errors
/// Those of the operating system.
pub(super) fn connected(endpoint: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(endpoint), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.connect(&endpoint.into())?;
    UdpSocket::from_std(socket.into())
}

/// Sends on a connected socket, bypassing the runtime's readiness: that is unknown for a new socket, and a datagram
/// without room is dropped.
///
/// # Errors
/// Those of the operating system, including pending errors of earlier datagrams.
pub(super) fn send(socket: &UdpSocket, bytes: &[u8]) -> io::Result<()> {
    SockRef::from(socket).send(bytes).map(drop)
}

impl ClientSocket {
    /// A socket for the runtime of this thread.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn new(socket: Socket) -> io::Result<Self> {
        let socket = UdpSocket::from_std(socket.into())?;
        Ok(Self { address: socket.local_addr()?, socket })
    }

    /// Its local address.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns `true` if the kernel still has the socket at its address.
    pub(crate) fn is_there(&self) -> bool {
        self.socket.local_addr().is_ok_and(|address| address == self.address)
    }

    /// Waits for a datagram.
    ///
    /// # Errors
    /// If the runtime has shut down.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    /// Receives a datagram, if there is one.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none, and others of the operating system.
    pub(super) fn receive(&self, into: &mut [u8]) -> io::Result<Received> {
        if self.address.ip().is_unspecified() {
            return self.socket.try_io(Interest::READABLE, || self.receive_with_address(into));
        }
        let (len, client) = self.socket.try_recv_from(into)?;
        Ok(Received { len, client, local: self.address.ip() })
    }

    fn receive_with_address(&self, into: &mut [u8]) -> io::Result<Received> {
        let (mut control, mut pieces) = ([0; CONTROL_BYTES], [IoSliceMut::new(into)]);
        let message = recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut pieces,
            Some(&mut control),
            MsgFlags::MSG_DONTWAIT,
        )?;
        let local = message.cmsgs()?.find_map(|control| {
            if let ControlMessageOwned::Ipv4PacketInfo(info) = control {
                return Some(Ipv4Addr::from_bits(u32::from_be(info.ipi_spec_dst.s_addr)).into());
            }
            let ControlMessageOwned::Ipv6PacketInfo(info) = control else { return None };
            Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into())
        });
        let client = message.address.and_then(|address| socket_address(&address));
        let (client, local) = client.zip(local).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Received { len: message.bytes, client, local })
    }

    /// Sends a datagram to a client, from the address that the client sent to.
    ///
    /// # Errors
    /// Those of the operating system; [`io::ErrorKind::WouldBlock`] if there is no room for it.
    pub(super) fn send(&self, bytes: &[u8], client: SocketAddr, local: IpAddr) -> io::Result<()> {
        if !self.address.ip().is_unspecified() {
            return SockRef::from(&self.socket).send_to(bytes, &client.into()).map(drop);
        }
        let (v4, v6);
        let control = match local {
            IpAddr::V4(local) => {
                let nobody = in_addr { s_addr: 0 };
                let spec = in_addr { s_addr: local.to_bits().to_be() };
                v4 = in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: spec, ipi_addr: nobody };
                ControlMessage::Ipv4PacketInfo(&v4)
            }
            IpAddr::V6(local) => {
                v6 = in6_pktinfo { ipi6_addr: in6_addr { s6_addr: local.octets() }, ipi6_ifindex: 0 };
                ControlMessage::Ipv6PacketInfo(&v6)
            }
        };
        let (pieces, client) = ([IoSlice::new(bytes)], SockaddrStorage::from(client));
        sendmsg(self.socket.as_raw_fd(), &pieces, &[control], MsgFlags::MSG_DONTWAIT, Some(&client))?;
        Ok(())
    }
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that sends to an address of the edge gets its answer from there.
    async fn check(bound: &str, client: &str, known_as: &str) {
        let edge = ClientSocket::new(open(bound.parse().unwrap()).unwrap()).unwrap();
        let client = UdpSocket::bind(client).await.unwrap();
        client.connect((known_as.parse::<IpAddr>().unwrap(), edge.address().port())).await.unwrap();
        client.send(b"question").await.unwrap();
        let mut bytes = [0; 64];
        let received = loop {
            edge.readable().await.unwrap();
            match edge.receive(&mut bytes) {
                Ok(received) => break received,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        };
        assert_eq!((received.len, received.local.to_canonical()), (8, known_as.parse().unwrap()));
        assert_eq!(received.client.port(), client.local_addr().unwrap().port());
        edge.send(b"answer", received.client, received.local).unwrap();
        // A connected socket receives from no other address.
        assert_eq!(client.recv(&mut bytes).await.unwrap(), 6);
    }

    #[tokio::test]
    async fn answers_come_from_the_address_that_was_asked() {
        check("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1").await;
        check("0.0.0.0:0", "127.0.0.1:0", "127.0.0.7").await;
        check("[::]:0", "127.0.0.1:0", "127.0.0.8").await;
        // Only if the machine has IPv6.
        if UdpSocket::bind("[::1]:0").await.is_ok() {
            check("[::]:0", "[::1]:0", "::1").await;
            check("[::1]:0", "[::1]:0", "::1").await;
        }
    }

    #[tokio::test]
    async fn threads_share_an_address_and_other_processes_do_not() {
        // Nothing else uses this address, so a port that is free in UDP is free in TCP.
        let first = open(([127, 0, 0, 54], 0).into()).unwrap();
        let address = first.local_addr().unwrap().as_socket().unwrap();
        open(address).unwrap();
        assert_eq!(probe(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        std::net::UdpSocket::bind(address).unwrap_err();
        // The same port number in TCP is independent.
        std::net::TcpListener::bind(address).unwrap();
    }
}
