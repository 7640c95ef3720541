//! The listening addresses of the process.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use super::{InvalidValue, Mode};
use crate::args::SocketArgs;

const OFF: &str = "off";

/// An address to listen on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListenAddress {
    /// The address; port 0 is any free port.
    pub(crate) address: SocketAddr,
    /// `true` if any free port will do when this one is taken: the user did not choose it.
    pub(crate) flexible: bool,
}

impl ListenAddress {
    /// The address to bind; a flexible one falls back to a free port if another process holds its port.
    pub(crate) fn settle(self) -> SocketAddr {
        let taken = self.flexible && TcpListener::bind(self.address).is_err();
        if taken { SocketAddr::new(self.address.ip(), 0) } else { self.address }
    }
}

/// The address of the dumps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DebugAddress {
    /// No dumps.
    Off,
    /// A TCP port.
    Tcp(ListenAddress),
    /// A unix socket.
    Unix(PathBuf),
}

/// Every address of the process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sockets {
    pub(crate) http: Vec<ListenAddress>,
    pub(crate) https: Vec<ListenAddress>,
    /// The address for connections to the builder of a Deis platform.
    pub(crate) deis_builder: Option<ListenAddress>,
    /// `true` if connections of all of these begin with a PROXY protocol header.
    pub(crate) proxy_protocol: bool,
    pub(crate) admin: Option<ListenAddress>,
    pub(crate) debug: DebugAddress,
}

impl Sockets {
    pub(super) fn read(args: &SocketArgs, mode: Mode) -> Result<Self, InvalidValue> {
        let usual = |port| match mode {
            Mode::Run => ListenAddress { address: (Ipv4Addr::UNSPECIFIED, port).into(), flexible: false },
            Mode::Dev => ListenAddress { address: (Ipv4Addr::LOCALHOST, port).into(), flexible: true },
        };
        let sockets = Self {
            http: traffic("--http", &args.http, usual(8080))?,
            https: traffic("--https", &args.https, usual(8443))?,
            deis_builder: one("--deis-builder-address", args.deis_builder_address.as_deref(), usual(2222))?,
            proxy_protocol: args.proxy_protocol,
            admin: one("--admin", args.admin.as_deref(), usual(9180))?,
            debug: debug(args, mode)?,
        };
        sockets.apart()?;
        Ok(sockets)
    }

    /// Refuses two sockets of the same address. Port 0 stands for one free port of a protocol, so twice is an error
    /// too.
    fn apart(&self) -> Result<(), InvalidValue> {
        let debug = match &self.debug {
            DebugAddress::Tcp(requested) => Some(*requested),
            DebugAddress::Off | DebugAddress::Unix(_) => None,
        };
        let mut seen = Vec::new();
        let http = self.http.iter().map(|requested| ("--http", *requested));
        let https = self.https.iter().map(|requested| ("--https", *requested));
        let builder = self.deis_builder.map(|requested| ("--deis-builder-address", requested));
        let own = self
            .admin
            .map(|requested| ("--admin", requested))
            .into_iter()
            .chain(debug.map(|requested| ("--debug", requested)));
        for (flag, ListenAddress { address, .. }) in http.chain(https).chain(builder).chain(own) {
            let socket = (address, (address.port() == 0).then_some(flag));
            if seen.contains(&socket) {
                return Err(InvalidValue::new(flag, address.to_string(), "is given twice"));
            }
            seen.push(socket);
        }
        Ok(())
    }
}

fn traffic(flag: &'static str, given: &[String], usual: ListenAddress) -> Result<Vec<ListenAddress>, InvalidValue> {
    match given {
        [] => Ok(vec![usual]),
        [off] if off == OFF => Ok(Vec::new()),
        several => several.iter().map(|text| listen_address(flag, text)).collect(),
    }
}

pub(super) fn one(
    flag: &'static str,
    given: Option<&str>,
    usual: ListenAddress,
) -> Result<Option<ListenAddress>, InvalidValue> {
    match given {
        None => Ok(Some(usual)),
        Some(OFF) => Ok(None),
        Some(text) => listen_address(flag, text).map(Some),
    }
}

fn debug(args: &SocketArgs, mode: Mode) -> Result<DebugAddress, InvalidValue> {
    let Some(text) = args.debug.as_deref() else {
        let address = (Ipv4Addr::LOCALHOST, 9181).into();
        return Ok(DebugAddress::Tcp(ListenAddress { address, flexible: mode == Mode::Dev }));
    };
    let parsed = debug_address("--debug", text)?;
    if let DebugAddress::Tcp(requested) = &parsed
        && !requested.address.ip().is_loopback()
        && !args.debug_anywhere
    {
        let why =
            "is not a loopback address; --debug-anywhere allows it, and anyone who can reach it then sees every route";
        return Err(InvalidValue::new("--debug", text, why));
    }
    Ok(parsed)
}

/// Parses the address of dumps; one off loopback is not refused here.
pub(crate) fn debug_address(flag: &'static str, text: &str) -> Result<DebugAddress, InvalidValue> {
    match text.strip_prefix("unix:") {
        Some("") => Err(InvalidValue::new(flag, text, "names no path")),
        Some(path) => Ok(DebugAddress::Unix(PathBuf::from(path))),
        None if text == OFF => Ok(DebugAddress::Off),
        None => listen_address(flag, text).map(DebugAddress::Tcp),
    }
}

fn listen_address(flag: &'static str, text: &str) -> Result<ListenAddress, InvalidValue> {
    let why = "is not an IP address with a port, such as 127.0.0.1:8080 or [::]:8080";
    let address = text.parse().map_err(|_| InvalidValue::new(flag, text, why))?;
    Ok(ListenAddress { address, flexible: false })
}
