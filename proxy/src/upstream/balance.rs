//! Load balancing: the choice of a target, then of an endpoint. The random source and the facts about endpoints are
//! arguments, so every choice can be reproduced.

use tidegate_config::model::{Balance, Endpoint, EndpointId};

use crate::upstream::endpoint_state::Load;

/// The number of random draws before all endpoints are walked: with few unusable ones the choice stays even and needs
/// no walk.
const DRAWS: usize = 4;

/// A seeded random source (`SplitMix64`).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A source with this seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below a bound; 0 for the bound 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        // The high word of the product is below the bound, so it fits.
        let product = u128::from(self.next()) * bound as u128;
        usize::try_from(product >> 64).unwrap_or_default()
    }
}

/// The facts about an endpoint for a choice.
pub(crate) trait EndpointFacts {
    /// Returns `true` if it may be chosen at all: not tried before, and not the edge itself.
    fn usable(&self, endpoint: &Endpoint) -> bool;
    /// Returns `true` if it is ejected: it is skipped while there are others.
    fn is_ejected(&self, endpoint: &Endpoint) -> bool;
    /// Its load.
    fn load(&self, id: EndpointId) -> Load;
}

/// Chooses one of the shares by weight, and returns its index; `None` if no weight is above 0.
pub(crate) fn share<S>(shares: &[S], weight_of: impl Fn(&S) -> u32, draw: &mut Random) -> Option<usize> {
    if let [only] = shares {
        return (weight_of(only) > 0).then_some(0);
    }
    let total: u64 = shares.iter().map(|share| u64::from(weight_of(share))).sum();
    let mut rest = draw.below(usize::try_from(total).ok()?) as u64;
    shares.iter().position(|share| {
        let weight = u64::from(weight_of(share));
        let chosen = rest < weight;
        rest = rest.saturating_sub(weight);
        chosen
    })
}

/// Chooses an endpoint. Ejected ones are chosen only if no other is usable.
pub(crate) fn endpoint<'e>(
    endpoints: &'e [Endpoint],
    balance: Balance,
    known: &impl EndpointFacts,
    turn: u64,
    draw: &mut Random,
) -> Option<&'e Endpoint> {
    let fresh = |endpoint: &Endpoint| known.usable(endpoint) && !known.is_ejected(endpoint);
    let usable = |endpoint: &Endpoint| known.usable(endpoint);
    match balance {
        Balance::RoundRobin => {
            let start = usize::try_from(turn % (endpoints.len() as u64).max(1)).ok()?;
            in_turn(endpoints, start, &fresh, draw).or_else(|| in_turn(endpoints, start, &usable, draw))
        }
        Balance::PowerOfTwo => {
            better(endpoints, &fresh, known, draw).or_else(|| better(endpoints, &usable, known, draw))
        }
    }
}

/// The less loaded of two drawn at random.
fn better<'e>(
    endpoints: &'e [Endpoint],
    accept: &impl Fn(&Endpoint) -> bool,
    known: &impl EndpointFacts,
    draw: &mut Random,
) -> Option<&'e Endpoint> {
    let first = drawn(endpoints, accept, draw)?;
    let other = |endpoint: &Endpoint| endpoint.id != first.id && accept(endpoint);
    let Some(second) = drawn(endpoints, &other, draw) else { return Some(first) };
    Some(if known.load(second.id).is_below(known.load(first.id)) { second } else { first })
}

/// The one whose turn it is. The turns of others go to all acceptable ones: a fixed successor would get twice its
/// share.
fn in_turn<'e>(
    endpoints: &'e [Endpoint],
    turn: usize,
    accept: &impl Fn(&Endpoint) -> bool,
    draw: &mut Random,
) -> Option<&'e Endpoint> {
    let own = endpoints.get(turn).filter(|endpoint| accept(endpoint));
    own.or_else(|| drawn(endpoints, accept, draw))
}

fn drawn<'e>(
    endpoints: &'e [Endpoint],
    accept: &impl Fn(&Endpoint) -> bool,
    draw: &mut Random,
) -> Option<&'e Endpoint> {
    let blind = (0..DRAWS).find_map(|_| endpoints.get(draw.below(endpoints.len())).filter(|e| accept(e)));
    blind.or_else(|| {
        // The first one behind a random place would have the share of all unusable ones before it, too.
        let acceptable = || endpoints.iter().filter(|endpoint| accept(endpoint));
        acceptable().nth(draw.below(acceptable().count()))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use tidegate_config::model::{AppProtocol, WeightedTarget};

    use super::*;
    use crate::sample_model::weighted;

    #[derive(Default)]
    struct Facts {
        tried: BTreeSet<EndpointId>,
        ejected: BTreeSet<EndpointId>,
        loads: BTreeMap<EndpointId, u32>,
    }

    impl EndpointFacts for Facts {
        fn usable(&self, endpoint: &Endpoint) -> bool {
            !self.tried.contains(&endpoint.id)
        }

        fn is_ejected(&self, endpoint: &Endpoint) -> bool {
            self.ejected.contains(&endpoint.id)
        }

        fn load(&self, id: EndpointId) -> Load {
            Load { in_flight: self.loads.get(&id).copied().unwrap_or(1), latency_us: None }
        }
    }

    fn pods(count: u8) -> Vec<Endpoint> {
        (1..=count).map(|last| Endpoint::tcp(([10, 0, 0, last], 80).into(), None)).collect()
    }

    /// How often each endpoint is chosen over many draws, by its index.
    fn shares(pods: &[Endpoint], facts: &Facts, balance: Balance) -> Vec<u64> {
        let mut shares = vec![0; pods.len()];
        for turn in 0..4000 {
            let chosen = endpoint(pods, balance, facts, turn, &mut Random::new(turn));
            let place = pods.iter().position(|pod| Some(pod) == chosen).unwrap();
            shares[place] += 1;
        }
        shares
    }

    #[test]
    fn equal_endpoints_get_equal_shares() {
        let pods = pods(8);
        for balance in [Balance::PowerOfTwo, Balance::RoundRobin] {
            for share in shares(&pods, &Facts::default(), balance) {
                assert!((400..600).contains(&share), "{balance:?} {share}");
            }
        }
    }

    #[test]
    fn the_idle_one_is_preferred() {
        let pods = pods(4);
        let loads = pods.iter().map(|pod| (pod.id, 10)).chain([(pods[2].id, 1)]).collect();
        let shares = shares(&pods, &Facts { loads, ..Facts::default() }, Balance::PowerOfTwo);
        // It is among the two of four that are drawn in half of the cases.
        assert!((1850..2150).contains(&shares[2]), "{shares:?}");
        // The most loaded of two is never chosen if the other is idle.
        let loads = pods.iter().map(|pod| (pod.id, 1)).chain([(pods[0].id, 10)]).collect();
        assert_eq!(self::shares(&pods, &Facts { loads, ..Facts::default() }, Balance::PowerOfTwo)[0], 0);
    }

    #[test]
    fn a_tried_endpoint_is_never_chosen_again() {
        for count in 1..=12 {
            let pods = pods(count);
            for tried in 0..=count {
                let tried = pods.iter().take(tried.into()).map(|pod| pod.id).collect();
                let facts = Facts { tried, ..Facts::default() };
                for (balance, seed) in [Balance::PowerOfTwo, Balance::RoundRobin].into_iter().zip(0..200) {
                    let chosen = endpoint(&pods, balance, &facts, seed, &mut Random::new(seed));
                    assert_eq!(chosen.is_none(), facts.tried.len() == pods.len());
                    assert!(chosen.is_none_or(|pod| !facts.tried.contains(&pod.id)));
                }
            }
        }
    }

    #[test]
    fn ejected_endpoints_are_skipped_unless_all_are_ejected() {
        let pods = pods(3);
        let ejected: BTreeSet<_> = pods.iter().take(2).map(|pod| pod.id).collect();
        for balance in [Balance::PowerOfTwo, Balance::RoundRobin] {
            let facts = Facts { ejected: ejected.clone(), ..Facts::default() };
            assert_eq!(shares(&pods, &facts, balance), [0, 0, 4000]);
            let all = Facts { ejected: pods.iter().map(|pod| pod.id).collect(), ..Facts::default() };
            assert!(shares(&pods, &all, balance).iter().all(|share| *share > 1000));
            let only_ejected = Facts { ejected: ejected.clone(), tried: [pods[2].id].into(), ..Facts::default() };
            assert_eq!(shares(&pods, &only_ejected, balance)[2], 0);
        }
        assert!(endpoint(&[], Balance::PowerOfTwo, &Facts::default(), 0, &mut Random::new(0)).is_none());
        assert!(endpoint(&[], Balance::RoundRobin, &Facts::default(), 7, &mut Random::new(0)).is_none());
    }

    /// The share of the first of two live endpoints in percent, beside this number of ejected ones before, between or
    /// behind them.
    fn share_of_first(balance: Balance, [before, between, behind]: [u8; 3], loads: [u32; 2]) -> u64 {
        let pods = pods(2 + before + between + behind);
        let live = [usize::from(before), usize::from(before + between) + 1];
        let ejected = (0..pods.len()).filter(|place| !live.contains(place)).map(|place| pods[place].id).collect();
        let loads = live.iter().zip(loads).map(|(place, load)| (pods[*place].id, load)).collect();
        let shares = shares(&pods, &Facts { ejected, loads, ..Facts::default() }, balance);
        let [first, second] = live.map(|place| shares[place]);
        assert_eq!(first + second, 4000, "{shares:?}");
        first * 100 / 4000
    }

    #[test]
    fn ejected_endpoints_shift_no_share_among_the_others() {
        for ejected in [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [10, 0, 0], [0, 5, 5], [3, 0, 7]] {
            for (loads, want) in [([1, 9], 100..=100), ([9, 1], 0..=0), ([5, 5], 47..=53)] {
                let share = share_of_first(Balance::PowerOfTwo, ejected, loads);
                assert!(want.contains(&share), "{ejected:?} ejected, {loads:?} loaded: {share} %");
                let share = share_of_first(Balance::RoundRobin, ejected, loads);
                assert!((47..=53).contains(&share), "{ejected:?} ejected, in turn: {share} %");
            }
        }
    }

    #[test]
    fn round_robin_takes_turns() {
        let pods = pods(3);
        let order: Vec<_> = (0..6)
            .map(|turn| endpoint(&pods, Balance::RoundRobin, &Facts::default(), turn, &mut Random::new(9)).unwrap().id)
            .collect();
        assert_eq!(order[..3], order[3..]);
        assert_eq!(order[..3], pods.iter().map(|pod| pod.id).collect::<Vec<_>>());
    }

    fn weight(target: &WeightedTarget) -> u32 {
        target.weight
    }

    #[test]
    fn targets_get_their_weight() {
        let targets = [("a", 3), ("b", 0), ("c", 1)].map(|(name, weight)| weighted(name, AppProtocol::Http, weight));
        let mut shares = BTreeMap::new();
        for seed in 0..4000 {
            let chosen = share(&targets, weight, &mut Random::new(seed)).unwrap();
            *shares.entry(["a", "b", "c"][chosen]).or_insert(0) += 1;
        }
        assert!((2900..3100).contains(&shares["a"]), "{shares:?}");
        assert!(!shares.contains_key("b"));
        assert!(share(&targets[1..2], weight, &mut Random::new(0)).is_none());
        assert!(share(&[], weight, &mut Random::new(0)).is_none());
    }
}
