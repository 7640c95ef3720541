//! The state shared by the traffic threads: limits, metrics, endpoint states and the access log. It outlives snapshots,
//! and consists of atomics and bounded queues.

use std::net::IpAddr;
use std::sync::Arc;

use prometheus::Registry;
use tidegate_config::model::{Backend, Snapshot};

use crate::budget::{Budget, Charge, Cost};
use crate::clock;
use crate::connection::clients::{ClientCharge, ClientPermit, Clients};
use crate::connection::idle::{self, List};
use crate::flow_budget::FlowBudget;
use crate::kept_answers::KeptAnswers;
use crate::limit::Counters;
use crate::observe::access_log::AccessLog;
use crate::observe::auth_metrics::AuthMetrics;
use crate::observe::connection_metrics::RefusalReason;
use crate::observe::external_auth_metrics::ExternalAuthMetrics;
use crate::observe::limit_metrics::LimitMetrics;
use crate::observe::limit_store_metrics::LimitStoreMetrics;
use crate::observe::metrics::{Metrics, show_budget};
use crate::observe::mirror_metrics::MirrorMetrics;
use crate::options::{Options, RateLimits};
use crate::sweep_trigger::SweepTrigger;
use crate::upstream::attempt::OwnAddresses;
use crate::upstream::endpoint_state::EndpointStates;
use crate::upstream::own_addresses::Listening;
use crate::upstream::service_state::RequestAtService;
use crate::verified_tokens::VerifiedTokens;

/// Shared by all traffic threads.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Limits and timeouts.
    pub(crate) options: Options,
    /// The files and memory of traffic.
    pub(crate) budget: Arc<Budget>,
    /// The share of each client.
    pub(crate) clients: Arc<Clients>,
    /// The metrics of requests.
    pub(crate) metrics: Metrics,
    /// The metrics of mirrored requests.
    pub(crate) mirrors: MirrorMetrics,
    /// The metrics of calls to authorisation services.
    pub(crate) external_auth: ExternalAuthMetrics,
    /// The metrics of authentication and authorisation.
    pub(crate) auth_metrics: AuthMetrics,
    /// The tokens that were accepted.
    pub(crate) tokens: VerifiedTokens,
    /// The answers to calls of rules that are kept.
    pub(crate) answers: KeptAnswers,
    /// The addresses on which the process listens for TCP.
    pub(crate) listening: Arc<Listening>,
    /// The addresses on which it listens for UDP.
    pub(crate) listening_udp: Arc<Listening>,
    /// The budget of the flows.
    pub(crate) flow_budget: Arc<FlowBudget>,
    /// The states of endpoints.
    pub(crate) endpoints: Arc<EndpointStates>,
    /// The counters of rate limits.
    pub(crate) counters: Counters,
    /// Whether a sweep has anything to remove.
    sweep_trigger: Arc<SweepTrigger>,
    /// The access log.
    pub(crate) access_log: AccessLog,
}

/// A cost that is charged to the process and to a client until this is dropped.
#[derive(Debug)]
pub(crate) struct ChargedCost {
    _client: Option<ClientCharge>,
    _process: Charge,
}

impl Shared {
    /// The addresses of this process, for a connection that came in over a local address.
    pub(crate) fn own_addresses(&self, local: IpAddr) -> OwnAddresses<'_> {
        OwnAddresses { listening: &self.listening, local: Some(local) }
    }

    /// Registers the metrics and opens the access log.
    ///
    /// # Errors
    /// If the registry has one of the names already, or the access log cannot be opened.
    pub(crate) fn new(options: &Options, registry: &Registry) -> Result<Arc<Self>, prometheus::Error> {
        let sweep_trigger = Arc::new(SweepTrigger::default());
        let endpoints = Arc::new(EndpointStates::new(clock::now(), Arc::clone(&sweep_trigger)));
        let metrics = Metrics::new(registry, Arc::clone(&endpoints), Arc::clone(&sweep_trigger))?;
        let dropped = metrics.log_lines_dropped.clone();
        let access_log = AccessLog::open(&options.access_log, dropped)?;
        let budget = Arc::new(Budget::new(&options.budget));
        show_budget(registry, &budget)?;
        let limit_metrics = Arc::new(LimitMetrics::register(registry, Arc::clone(&sweep_trigger))?);
        let counters = Counters::new(options.counters, clock::now(), limit_metrics, Arc::clone(&sweep_trigger));
        let counters = match &options.limit_store {
            Some(store) => counters.shared_in(store.clone(), LimitStoreMetrics::register(registry)?),
            None => counters,
        };
        let auth_metrics = AuthMetrics::register(registry, Arc::clone(&sweep_trigger))?;
        let flow_budget = Arc::new(FlowBudget::new(Arc::clone(&budget)));
        Ok(Arc::new(Self {
            options: options.clone(),
            clients: Arc::new(Clients::new(&options.budget, Arc::clone(&budget))),
            budget,
            metrics,
            mirrors: MirrorMetrics::register(registry)?,
            external_auth: ExternalAuthMetrics::register(registry)?,
            auth_metrics,
            tokens: VerifiedTokens::register(registry)?,
            answers: KeptAnswers::default(),
            listening: Arc::default(),
            listening_udp: Arc::default(),
            flow_budget,
            endpoints,
            counters,
            sweep_trigger,
            access_log,
        }))
    }

    /// Charges a cost. If there is no room, the longest idle connections of this thread are closed, as many as
    /// necessary. Returns `true` if it was charged. While the resident memory is too large, a connection must be closed
    /// in any case.
    pub(crate) fn charge(&self, cost: Cost) -> bool {
        if self.budget.is_exhausted() && !self.evict() {
            return false;
        }
        while !self.budget.charge(cost) {
            if !self.evict() {
                return false;
            }
        }
        true
    }

    fn evict(&self) -> bool {
        let freed = idle::evict(List::Connections);
        if let Some(cost) = freed {
            self.metrics.evicted.inc();
            self.budget.release(cost);
        }
        freed.is_some()
    }

    /// Charges a cost to the process and to a client, `None` for one without a share, until the returned value is
    /// dropped.
    ///
    /// # Errors
    /// Which of the two has no room.
    pub(crate) fn room_for(&self, client: Option<&ClientPermit>, cost: Cost) -> Result<ChargedCost, RefusalReason> {
        let client = client.map(|client| client.hold(cost).ok_or(RefusalReason::Client)).transpose()?;
        let process = self.room(cost).ok_or(RefusalReason::Full)?;
        Ok(ChargedCost { _client: client, _process: process })
    }

    /// [`Self::charge`] until the returned value is dropped; `None` if there is no room.
    pub(crate) fn room(&self, cost: Cost) -> Option<Charge> {
        self.charge(cost).then(|| self.budget.keep(cost))
    }

    /// The minimum rates of clients, and the budget that decides whether they are enforced.
    pub(crate) fn rates(&self) -> (&RateLimits, &Budget) {
        (&self.options.client.rates, &self.budget)
    }

    /// Counts a request of this cost at a Service port; `None` if the port may have no more of them, by its own maximum
    /// or the operator's, or by the part of the budget that one Service gets.
    pub(crate) fn enter_service(&self, backend: &Backend, cost: Cost) -> Option<RequestAtService> {
        let max = match backend.requests_max.unwrap_or(self.options.budget.service_requests) {
            0 => u32::MAX,
            max => max,
        };
        self.endpoints.enter_service(&backend.key, cost, (max, self.budget.service_max()))
    }

    /// Removes the state of objects that are not in the snapshot, if there can be any. The cost grows with the whole
    /// model, so a control thread should call this periodically.
    pub(crate) fn sweep(&self, snapshot: &Snapshot) {
        self.metrics.sample_requests();
        self.clients.sweep();
        self.counters.sweep_expired(clock::now());
        if !self.sweep_trigger.take_if_due(snapshot.generation()) {
            return;
        }
        self.endpoints.sweep(snapshot);
        self.metrics.sweep(snapshot);
        self.counters.sweep_unnamed(snapshot.limits().map(|limit| &**limit));
        self.auth_metrics.sweep(&snapshot.auth_rules().collect());
    }
}

#[cfg(test)]
impl Shared {
    /// The state of a proxy with default options and no access log.
    pub(crate) fn sample() -> Arc<Self> {
        let options = Options { access_log: crate::options::AccessLogSink::Off, ..Options::default() };
        Self::new(&options, &Registry::new()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_config::model::{AppProtocol, Endpoint};
    use tidegate_config::object::{Kind, ObjectName, ObjectRef};

    use super::*;
    use crate::options::AccessLogSink;
    use crate::sample_model::{endpoints, parts, path, published, to_backend};

    #[test]
    fn state_that_returns_after_its_object_is_gone_is_swept_too() {
        let registry = Registry::new();
        let options = Options { access_log: AccessLogSink::Off, ..Options::default() };
        let shared = Shared::new(&options, &registry).unwrap();
        let mut model = parts(vec![("a.test", vec![to_backend("web", path("/"), AppProtocol::Http)])], None);
        endpoints(&mut model, "web", &[([10, 0, 0, 1], 80).into()]);
        let snapshot = published(model).pin();
        let shows = |name: &str| {
            let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
            text.contains(&format!("Ingress shop/{name}"))
        };
        let gone = Endpoint::tcp(([10, 0, 0, 9], 80).into(), None).id;
        shared.sweep(&snapshot);
        // Twice: with the last request of a removed object, and then with a request that took even longer.
        for _ in 0..2 {
            for name in ["web", "gone"] {
                let object = ObjectRef::new(Kind::Ingress, ObjectName::new("shop", name));
                shared.metrics.finished(Some(&object), 101, Duration::ZERO);
            }
            drop(shared.endpoints.enter(gone));
            shared.sweep(&snapshot);
            assert!(shows("web") && !shows("gone"));
            assert!(shared.endpoints.peek(gone, |_| ()).is_none());
            drop(shared.endpoints.enter(gone));
            shared.sweep(&snapshot);
            assert!(shared.endpoints.peek(gone, |_| ()).is_none());
        }
    }
}
