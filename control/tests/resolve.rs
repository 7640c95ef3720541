//! The names of ExternalName Services, with a name server of the test on loopback.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tidegate_control::{Event, Names, ResolveLimits, Resolver, Upstream};
use tokio::net::UdpSocket;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(20);
const MS: fn(u64) -> Duration = Duration::from_millis;

/// The name server's answer for a name.
#[derive(Clone)]
enum Says {
    /// These addresses with this TTL in seconds; each question gets those of its family.
    Addresses(Vec<IpAddr>, u32),
    /// An alias of a name with these addresses.
    Alias(Vec<IpAddr>, u32),
    /// A response code: NXDOMAIN, SERVFAIL and the like.
    Code(ResponseCode),
    /// No answer.
    Mute,
}

#[derive(Default)]
struct Zone {
    names: BTreeMap<String, Says>,
    asked: BTreeMap<String, usize>,
}

struct Run {
    zone: Arc<Mutex<Zone>>,
    wanted: watch::Sender<Arc<Names>>,
    events: mpsc::Receiver<Event>,
    task: tokio::task::JoinHandle<()>,
    stop: CancellationToken,
    _server: JoinSet<()>,
}

fn quick() -> ResolveLimits {
    ResolveLimits { ttl: MS(10)..=MS(50), retry: MS(10)..=MS(50), ..ResolveLimits::default() }
}

async fn start(names: &[(&str, Says)], limits: ResolveLimits) -> Run {
    remembering(names, limits, &[]).await
}

/// The same, with these addresses remembered over a restart.
async fn remembering(names: &[(&str, Says)], limits: ResolveLimits, kept: &[(&str, &[&str])]) -> Run {
    let kept = kept.iter().map(|(name, texts)| ((*name).into(), addresses(texts).into())).collect();
    let names = names.iter().map(|(name, says)| ((*name).to_owned(), says.clone())).collect();
    let zone = Arc::new(Mutex::new(Zone { names, asked: BTreeMap::new() }));
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream::Servers(vec![socket.local_addr().unwrap()]);
    let mut server = JoinSet::new();
    server.spawn(serve(socket, Arc::clone(&zone)));
    let (wanted, names) = watch::channel(Arc::default());
    let (sender, events) = mpsc::channel(64);
    let stop = CancellationToken::new();
    let task = tokio::spawn(Resolver::new(upstream, limits, names, sender, 7).keeping(None, kept).run(stop.clone()));
    Run { zone, wanted, events, task, stop, _server: server }
}

async fn serve(socket: UdpSocket, zone: Arc<Mutex<Zone>>) {
    let mut buffer = vec![0; 4096];
    loop {
        let (length, from): (usize, SocketAddr) = socket.recv_from(&mut buffer).await.unwrap();
        let query = Message::from_vec(&buffer[..length]).unwrap();
        let question = query.queries.first().unwrap().clone();
        let name = question.name().to_ascii().trim_end_matches('.').to_owned();
        let mut zone = zone.lock().await;
        *zone.asked.entry(name.clone()).or_default() += 1;
        let mut answer = Message::response(query.metadata.id, OpCode::Query);
        answer.add_query(question.clone());
        let add = |answer: &mut Message, name: &Name, addresses: &[IpAddr], ttl: u32| {
            for address in addresses {
                let (kind, data) = match address {
                    IpAddr::V4(v4) => (RecordType::A, RData::A(A(*v4))),
                    IpAddr::V6(v6) => (RecordType::AAAA, RData::AAAA(AAAA(*v6))),
                };
                if kind == question.query_type() {
                    answer.add_answer(Record::from_rdata(name.clone(), ttl, data));
                }
            }
        };
        match zone.names.get(&name).cloned().unwrap_or(Says::Code(ResponseCode::NXDomain)) {
            Says::Mute => continue,
            Says::Code(code) => answer.metadata.response_code = code,
            Says::Addresses(addresses, ttl) => add(&mut answer, question.name(), &addresses, ttl),
            Says::Alias(addresses, ttl) => {
                let target = Name::from_ascii("target.example.").unwrap();
                let alias = RData::CNAME(CNAME(target.clone()));
                answer.add_answer(Record::from_rdata(question.name().clone(), ttl, alias));
                add(&mut answer, &target, &addresses, ttl);
            }
        }
        socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
    }
}

impl Run {
    /// Names are those of a namespace `shop`, or `namespace/name`.
    fn want(&self, names: &[&str]) {
        let mut wanted = Names::new();
        for (namespace, name) in names.iter().map(|name| name.split_once('/').unwrap_or(("shop", name))) {
            wanted.entry(name.into()).or_default().insert(namespace.into());
        }
        self.wanted.send_replace(Arc::new(wanted));
    }

    async fn say(&self, name: &str, says: Says) {
        self.zone.lock().await.names.insert(name.to_owned(), says);
    }

    async fn asked(&self, name: &str) -> usize {
        self.zone.lock().await.asked.get(name).copied().unwrap_or_default()
    }

    async fn next(&mut self) -> String {
        let event = tokio::time::timeout(DEADLINE, self.events.recv()).await.expect("an event in time");
        let Some(Event::Resolved { name, addresses }) = event else { panic!("{event:?}") };
        match addresses {
            Ok(addresses) => {
                let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                format!("{name}: {}", addresses.join(" "))
            }
            Err(why) => format!("{name}: {why}"),
        }
    }

    /// Waits until a name was queried this many more times.
    async fn asked_again(&self, name: &str, times: usize) {
        let until = self.asked(name).await + times;
        let waited = async {
            while self.asked(name).await < until {
                tokio::time::sleep(MS(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, waited).await.expect("it asks again");
    }
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Compares the first answer for a name.
#[track_caller]
fn check(says: Says, expected: &str) {
    let told = block_on(async {
        let limits = ResolveLimits { lookup: MS(300), ..quick() };
        let mut run = start(&[("web.example", says)], limits).await;
        run.want(&["web.example"]);
        run.next().await
    });
    assert_eq!(told, format!("web.example: {expected}"));
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn addresses_of_both_families_are_sorted_once_each() {
    let all = addresses(&["10.0.0.2", "2001:db8::1", "10.0.0.1", "10.0.0.2"]);
    check(Says::Addresses(all, 60), "10.0.0.1 10.0.0.2 2001:db8::1");
    check(Says::Addresses(addresses(&["10.0.0.1"]), 0), "10.0.0.1");
    check(Says::Addresses(addresses(&["2001:db8::1"]), 60), "2001:db8::1");
    check(Says::Alias(addresses(&["10.0.0.1", "2001:db8::1"]), 60), "10.0.0.1 2001:db8::1");
}

#[test]
fn a_missing_name_differs_from_a_dns_failure() {
    check(Says::Code(ResponseCode::NXDomain), "the name has no addresses in DNS");
    check(Says::Addresses(vec![], 60), "the name has no addresses in DNS");
    check(Says::Code(ResponseCode::ServFail), "DNS does not answer");
    check(Says::Code(ResponseCode::Refused), "DNS does not answer");
    check(Says::Mute, "DNS does not answer");
}

#[test]
fn only_a_changed_answer_is_an_event() {
    block_on(async {
        let says = |address| Says::Addresses(addresses(&[address]), 0);
        let mut run = start(&[("web.example", says("10.0.0.1"))], quick()).await;
        run.want(&["web.example"]);
        assert_eq!(run.next().await, "web.example: 10.0.0.1");
        run.asked_again("web.example", 6).await;
        assert!(run.events.try_recv().is_err(), "the same answer is no event");
        run.say("web.example", says("10.0.0.2")).await;
        assert_eq!(run.next().await, "web.example: 10.0.0.2");
        // A failing resolver causes no event, a deleted name does.
        run.say("web.example", Says::Code(ResponseCode::ServFail)).await;
        run.asked_again("web.example", 6).await;
        assert!(run.events.try_recv().is_err(), "a failed look-up is no deletion");
        run.say("web.example", Says::Code(ResponseCode::NXDomain)).await;
        assert_eq!(run.next().await, "web.example: the name has no addresses in DNS");
        run.say("web.example", says("10.0.0.3")).await;
        assert_eq!(run.next().await, "web.example: 10.0.0.3");
    });
}

#[test]
fn a_remembered_name_is_announced_when_it_is_wanted_later() {
    block_on(async {
        let says = || Says::Addresses(addresses(&["192.0.2.1"]), 1);
        let names = [("first.test", says()), ("later.test", says())];
        let mut run = remembering(&names, quick(), &[("later.test", &["192.0.2.1"])]).await;
        run.want(&["first.test"]);
        assert_eq!(run.next().await, "first.test: 192.0.2.1");
        run.want(&["first.test", "later.test"]);
        assert_eq!(run.next().await, "later.test: 192.0.2.1");
    });
}

#[test]
fn only_wanted_names_are_resolved() {
    block_on(async {
        let says = |address| Says::Addresses(addresses(&[address]), 0);
        let mut run = start(&[("a.example", says("10.0.0.1")), ("b.example", says("10.0.0.2"))], quick()).await;
        run.want(&["a.example"]);
        assert_eq!(run.next().await, "a.example: 10.0.0.1");
        run.want(&["b.example"]);
        assert_eq!(run.next().await, "b.example: 10.0.0.2");
        // All lookups in progress for the dropped name have been sent by now.
        run.asked_again("b.example", 4).await;
        let asked = run.asked("a.example").await;
        run.asked_again("b.example", 10).await;
        assert_eq!(run.asked("a.example").await, asked);
        // After it is wanted again, its addresses are sent again although they are unchanged.
        run.want(&["a.example", "b.example"]);
        assert_eq!(run.next().await, "a.example: 10.0.0.1");
    });
}

#[test]
fn concurrent_look_ups_are_limited() {
    block_on(async {
        let names: Vec<String> = (0..20).map(|n| format!("n{n}.example")).collect();
        let zone: Vec<_> = names.iter().map(|name| (name.as_str(), Says::Mute)).collect();
        let mut run = start(&zone, ResolveLimits { lookups_max: 3, lookup: MS(400), ..quick() }).await;
        let each_alone: Vec<String> = names.iter().map(|name| format!("of-{name}/{name}")).collect();
        run.want(&each_alone.iter().map(String::as_str).collect::<Vec<_>>());
        run.asked_again("n0.example", 1).await;
        tokio::time::sleep(MS(100)).await;
        assert_eq!(run.zone.lock().await.asked.len(), 3);
        // Names without an answer do not block the others.
        let told: BTreeSet<_> = [run.next().await, run.next().await, run.next().await, run.next().await].into();
        assert!(told.len() > 3, "{told:?}");
    });
}

#[test]
fn a_mute_dns_server_delays_only_its_own_namespace() {
    const LOOKUPS: usize = 4;
    let mute: Vec<String> = (0..10 * LOOKUPS).map(|n| format!("loud/mute{n}.example")).collect();
    let loud: Vec<&str> = mute.iter().map(String::as_str).collect();
    let both = [&*loud, &["quiet/web.example"]].concat();
    // The quiet name is added after the mute names, and before them.
    for first in [&*loud, &["quiet/web.example"]] {
        block_on(async {
            let zone = loud.iter().filter_map(|name| name.split_once('/')).map(|(_, name)| (name, Says::Mute));
            let web = ("web.example", Says::Addresses(addresses(&["10.0.0.1"]), 0));
            let limits = ResolveLimits { lookups_max: LOOKUPS, ..quick() };
            let mut run = start(&zone.chain([web]).collect::<Vec<_>>(), limits).await;
            run.want(first);
            let (_, name) = first[0].split_once('/').unwrap();
            run.asked_again(name, 1).await;
            run.want(&both);
            assert_eq!(run.next().await, "web.example: 10.0.0.1");
            // It is looked up repeatedly, while no mute name has been given up.
            run.asked_again("web.example", 20).await;
            assert!(run.events.try_recv().is_err(), "a mute name was waited for");
            let of_mute = run.zone.lock().await.asked.keys().filter(|name| name.starts_with("mute")).count();
            assert_eq!(of_mute, LOOKUPS / 2);
        });
    }
}

#[test]
fn an_invalid_dns_name_has_no_addresses() {
    block_on(async {
        let mut run = start(&[], quick()).await;
        let long = "a".repeat(64) + ".example";
        run.want(&[&long]);
        assert_eq!(run.next().await, format!("{long}: the name has no addresses in DNS"));
    });
}

#[test]
fn without_servers_every_look_up_fails() {
    block_on(async {
        let (wanted, names) =
            watch::channel(Arc::new(Names::from([("web.example".into(), BTreeSet::from(["shop".into()]))])));
        let (sender, mut events) = mpsc::channel(4);
        let resolver = Resolver::new(Upstream::Servers(vec![]), quick(), names, sender, 7);
        let task = tokio::spawn(resolver.run(CancellationToken::new()));
        let event = tokio::time::timeout(DEADLINE, events.recv()).await.expect("an event in time");
        assert!(matches!(&event, Some(Event::Resolved { addresses: Err(why), .. }) if why == "DNS does not answer"));
        drop(wanted);
        tokio::time::timeout(DEADLINE, task).await.expect("it ends when nobody wants anything").unwrap();
    });
}

#[test]
fn a_resolver_stops_when_cancelled_and_when_its_receiver_is_dropped() {
    block_on(async {
        let run = start(&[("mute.example", Says::Mute)], quick()).await;
        run.want(&["mute.example"]);
        run.asked_again("mute.example", 1).await;
        run.stop.cancel();
        tokio::time::timeout(DEADLINE, run.task).await.expect("it ends").unwrap();
        let mut run = start(&[("web.example", Says::Addresses(addresses(&["10.0.0.1"]), 0))], quick()).await;
        run.events.close();
        run.want(&["web.example"]);
        tokio::time::timeout(DEADLINE, run.task).await.expect("it ends").unwrap();
    });
}
