//! Honest clients, which can recognise their own answers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tidegate_tests::moment;

use crate::raw::{Client, Response};

/// The address of honest clients. Attackers have others, so that a limit for each client address tells them apart.
pub(crate) const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

/// The outcome of one request of an honest client.
#[derive(Debug)]
pub(crate) enum Given {
    /// Its own answer.
    Own,
    /// 503 `out-of-resources` with a `Retry-After`: the edge lacks a resource and reports it.
    Refused,
    /// Another answer, such as bytes of another tenant, or none.
    Wrong(String),
}

/// A client of one tenant that keeps its connection as long as possible.
#[derive(Debug)]
pub(crate) struct Honest {
    address: SocketAddr,
    tenant: &'static str,
    client: Option<Client>,
    asked: u64,
}

impl Honest {
    pub(crate) const fn new(address: SocketAddr, tenant: &'static str) -> Self {
        Self { address, tenant, client: None, asked: 0 }
    }

    /// Sends one request, on the open connection or on a new one.
    pub(crate) async fn ask(&mut self) -> Given {
        self.asked += 1;
        let path = format!("/private?n={}", self.asked);
        match self.answer(&path).await {
            Ok(response) => self.judge(&response, &path),
            Err(error) => Given::Wrong(format!("{} {path}: {error}", self.tenant)),
        }
    }

    /// Like [`Honest::ask`], on a new connection.
    pub(crate) async fn ask_on_a_new_connection(&mut self) -> Given {
        self.client = None;
        self.ask().await
    }

    async fn answer(&mut self, path: &str) -> Result<Response, String> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect_from(HONEST, self.address).await?,
        };
        let response = client.ask(format!("GET {path} HTTP/1.1\r\nHost: {}.test\r\n\r\n", self.tenant)).await?;
        if !response.closes() {
            self.client = Some(client);
        }
        Ok(response)
    }

    fn judge(&self, response: &Response, path: &str) -> Given {
        let own = format!("{} {path}", self.tenant);
        if response.status() == 200 && response.text() == own && response.interim.is_empty() {
            Given::Own
        } else if response.status() == 503
            && !response.values("retry-after").is_empty()
            && response.text().contains("\nreason: out-of-resources\n")
        {
            Given::Refused
        } else {
            Given::Wrong(format!("{own}: {}{}", response.head, response.text()))
        }
    }
}

/// The answers to many requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Own answers.
    pub(crate) own: u64,
    /// Refusals with a `Retry-After`.
    pub(crate) refused: u64,
    /// The wrong answers, of which the first few are kept.
    pub(crate) wrong: Vec<String>,
    /// The times of the own answers.
    pub(crate) times: Vec<Duration>,
}

impl Tally {
    /// Sends one request and counts the answer.
    pub(crate) async fn ask(&mut self, client: &mut Honest) {
        let begun = moment();
        let given = client.ask().await;
        self.add(given, begun.elapsed());
    }

    pub(crate) fn add(&mut self, given: Given, time: Duration) {
        match given {
            Given::Own => {
                self.own += 1;
                self.times.push(time);
            }
            Given::Refused => self.refused += 1,
            Given::Wrong(complaint) if self.wrong.len() < 20 => self.wrong.push(complaint),
            Given::Wrong(_) => {}
        }
    }

    /// Adds the counts of another tally.
    pub(crate) fn merge(&mut self, other: Self) {
        self.own += other.own;
        self.refused += other.refused;
        self.wrong.extend(other.wrong);
        self.wrong.truncate(20);
        self.times.extend(other.times);
    }
}

/// Sends requests on kept connections until there are this many answers; each has to be the tenant's own.
#[track_caller]
pub(crate) fn is_served(address: SocketAddr, tenant: &'static str, count: u64) -> impl Future<Output = ()> + Send {
    let caller = std::panic::Location::caller();
    async move {
        let (mut client, mut tally) = (Honest::new(address, tenant), Tally::default());
        for _ in 0..count {
            tally.ask(&mut client).await;
        }
        assert!(
            tally.own == count,
            "{caller}: {} of {count} own answers, {} refused, {:#?}",
            tally.own,
            tally.refused,
            tally.wrong
        );
    }
}
