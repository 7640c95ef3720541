//! Mirrored requests. The copies neither delay the original request nor fail it, and their responses are ignored.

mod copy;
mod copied_head;

use std::sync::Arc;

use bytes::Bytes;
use tidegate_config::model::{Backend, Filter, Head, Mirror, Target};

use self::copied_head::CopiedHead;
use crate::budget::{Charge, Cost};
use crate::clock;
use crate::http::edits::Edits;
use crate::http::names::HeaderNames;
use crate::observe::in_flight::InFlight;
use crate::observe::mirror_metrics::Outcome;
use crate::shared::Shared;
use crate::upstream::attempt::OwnAddresses;
use crate::upstream::balance::Random;
use crate::upstream::service_state::CopyAtService;

/// The maximum size of a buffered body; a larger request is not mirrored.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// The destination of a copy, and its place among all copies.
#[derive(Debug)]
struct CopyTarget {
    target: Arc<Target>,
    backend: Arc<Backend>,
    _place: Place,
}

/// The place of one copy, from its preparation to its end: one of the limited number, of its Service's share of them,
/// and its charge.
#[derive(Debug)]
struct Place {
    _in_flight: InFlight,
    _at_service: CopyAtService,
    _charge: Charge,
}

impl Place {
    /// Takes a place for a copy to a Service.
    ///
    /// # Errors
    /// The outcome of the copy, if there is no place.
    fn take(backend: &Backend, shared: &Shared) -> Result<Self, Outcome> {
        let free = shared.mirrors.free();
        let full = if free == 0 { Outcome::NoRoom } else { Outcome::ServiceShare };
        let _at_service = shared.endpoints.enter_copy(&backend.key, free).ok_or(full)?;
        let _in_flight = shared.mirrors.enter().ok_or(Outcome::NoRoom)?;
        if !shared.budget.charge_spare(Cost::MIRROR) {
            return Err(Outcome::NoRoom);
        }
        Ok(Self { _in_flight, _at_service, _charge: shared.budget.keep(Cost::MIRROR) })
    }
}

/// Copies in preparation: the received part of the request, and the targets.
#[derive(Debug)]
pub(crate) struct Copies {
    to: Vec<CopyTarget>,
    head: Option<CopiedHead>,
    body: Vec<u8>,
    is_large: bool,
    /// The random source for choosing endpoints.
    draw: Random,
}

/// The mirrors among the filters that are selected at random, each by itself.
pub(crate) fn drawn<'f>(filters: impl Iterator<Item = &'f Filter>, draw: &mut Random) -> Vec<&'f Mirror> {
    let mirrors = filters.filter_map(|filter| match filter {
        Filter::Mirror(mirror) => Some(mirror),
        Filter::RequestHeaders(_)
        | Filter::ResponseHeaders(_)
        | Filter::Path(_)
        | Filter::Host(_)
        | Filter::Cors(_) => None,
    });
    mirrors.filter(|mirror| draw.below(mirror.denominator as usize) < mirror.numerator as usize).collect()
}

impl Copies {
    /// The copies of a request for these mirrors; `None` if there is none to send.
    pub(crate) fn begin(
        mirrors: &[&Mirror],
        shared: &Shared,
        draw: Random,
        backend_of: impl Fn(&Mirror) -> Option<Arc<Backend>>,
    ) -> Option<Self> {
        let mut to = Vec::new();
        for mirror in mirrors {
            let backend = backend_of(mirror).filter(|backend| !backend.endpoints.is_empty());
            let taken = backend.ok_or(Outcome::NoEndpoint).and_then(|backend| {
                let _place = Place::take(&backend, shared)?;
                Ok(CopyTarget { target: Arc::clone(&mirror.to), backend, _place })
            });
            match taken {
                Ok(copy) => to.push(copy),
                Err(outcome) => shared.mirrors.count(outcome),
            }
        }
        (!to.is_empty()).then_some(Self { to, head: None, body: Vec::new(), is_large: false, draw })
    }

    /// Stores the head as sent to the endpoint, without the framing of the body.
    pub(crate) fn head<H: Head + HeaderNames>(&mut self, head: &H, edits: &Edits) {
        self.head = Some(CopiedHead::new(head, edits));
    }

    /// Stores a piece of the body that begins at a position: bytes that a further attempt sends again are known.
    pub(crate) fn piece(&mut self, position: u64, piece: &[u8]) {
        let known = (self.body.len() as u64).saturating_sub(position);
        let Some(new) = usize::try_from(known).ok().and_then(|known| piece.get(known..)) else { return };
        self.is_large |= self.body.len() + new.len() > BODY_BYTES_MAX;
        if self.is_large {
            self.body = Vec::new();
        } else {
            self.body.extend_from_slice(new);
        }
    }

    /// Returns `true` if the head is stored.
    pub(crate) const fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// Sends the copies, after the request is complete.
    pub(crate) fn send(mut self, shared: &Arc<Shared>, here: OwnAddresses<'_>) {
        let Some(head) = self.head.filter(|_| !self.is_large) else {
            self.to.iter().for_each(|_| shared.mirrors.count(Outcome::TooLarge));
            return;
        };
        let body = Bytes::from(self.body);
        for destined in self.to {
            let message = head.message(&destined.target, &body);
            copy::send(shared, (destined, here), message, (clock::now(), &mut self.draw));
        }
    }

    /// The request did not complete, or no endpoint took it.
    pub(crate) fn abandon(self, shared: &Shared) {
        self.to.iter().for_each(|_| shared.mirrors.count(Outcome::Aborted));
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::{AppProtocol, BackendKey};
    use tidegate_config::object::ObjectName;

    use super::*;
    use crate::sample_model::{endpoints, parts, published, weighted};

    fn mirror(numerator: u32, denominator: u32) -> Filter {
        let to = Arc::clone(weighted("copy", AppProtocol::Http, 1).target().unwrap());
        Filter::Mirror(Mirror { to, numerator, denominator })
    }

    fn copies() -> Copies {
        Copies { to: Vec::new(), head: None, body: Vec::new(), is_large: false, draw: Random::new(1) }
    }

    #[test]
    fn each_mirror_is_chosen_independently() {
        let filters = [mirror(1, 1), mirror(0, 1), mirror(20, 100), mirror(1, 1000), Filter::Host("x".into())];
        let mut counts = [0_u32; 4];
        let mut draw = Random::new(7);
        for _ in 0..10_000 {
            for mirror in drawn(filters.iter(), &mut draw) {
                let place = filters.iter().position(|own| matches!(own, Filter::Mirror(own) if own == mirror)).unwrap();
                counts[place] += 1;
            }
        }
        assert_eq!(counts[..2], [10_000, 0]);
        assert!((1_800..2_200).contains(&counts[2]) && (2..30).contains(&counts[3]), "{counts:?}");
    }

    #[test]
    fn mirrors_of_one_service_leave_places_for_others() {
        let shared = Shared::sample();
        let mut parts = parts(Vec::new(), None);
        for name in ["greedy", "other"] {
            endpoints(&mut parts, name, &[([10, 0, 0, 1], 80).into()]);
        }
        let snapshot = published(parts).pin();
        let backend = |name| snapshot.backend(&BackendKey::tcp(ObjectName::new("shop", name), 80)).unwrap();
        let (mut places, mut full) = (Vec::new(), None);
        while full.is_none() {
            match Place::take(backend("greedy"), &shared) {
                Ok(place) => places.push(place),
                Err(outcome) => full = Some(outcome),
            }
        }
        assert_eq!((places.len(), full), (512, Some(Outcome::ServiceShare)));
        let other = Place::take(backend("other"), &shared).unwrap();
        // A place that is free again is anyone's.
        places.pop();
        let again = Place::take(backend("greedy"), &shared).unwrap();
        drop((places, again, other));
        assert_eq!(shared.mirrors.free(), 1024);
    }

    #[test]
    fn a_body_is_kept_once_and_up_to_a_limit() {
        let mut copy = copies();
        copy.piece(0, b"abc");
        // A further attempt begins from the start, with other pieces.
        for (position, piece) in [(0, &b"ab"[..]), (2, b"cde"), (5, b"f"), (0, b"abcdef")] {
            copy.piece(position, piece);
        }
        assert_eq!((copy.body.as_slice(), copy.is_large), (b"abcdef".as_slice(), false));
        copy.piece(6, &[b'x'; BODY_BYTES_MAX - 6]);
        assert!(!copy.is_large);
        copy.piece(BODY_BYTES_MAX as u64, b"x");
        assert!(copy.is_large && copy.body.is_empty());
    }
}
