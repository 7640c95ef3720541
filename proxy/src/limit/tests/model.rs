//! The counters of one thread beside a naive model: lists of counted requests.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// For each limit, window and value: the start of the window and the requests in it.
#[derive(Default)]
struct Model(BTreeMap<CounterId, (u64, u32)>);

/// The name of a limit, its window in milliseconds, and the value.
type CounterId = (String, u64, String);

impl Model {
    fn count(&self, key: &CounterId, ms: u64) -> u32 {
        self.0.get(key).filter(|(start, _)| ms < start + key.1).map_or(0, |(_, count)| *count)
    }

    fn decide(&mut self, ms: u64, charges: &[(&Limit, &str)]) -> bool {
        let keys = |limit: &Limit, value: &str| -> Vec<(u32, CounterId)> {
            let key = |rate: &Rate| (limit.id.name().to_string(), rate.window.as_millis() as u64, value.to_owned());
            limit.rates.iter().map(|rate| (rate.max, key(rate))).collect()
        };
        let has_room =
            |(limit, value): &(&Limit, &str)| keys(limit, value).iter().all(|(max, key)| self.count(key, ms) < *max);
        let counting: Vec<_> = charges.iter().filter(|charge| has_room(charge)).copied().collect();
        let passes = charges.iter().all(|charge| charge.0.shadow || has_room(charge));
        for (_, key) in counting.iter().filter(|_| passes).flat_map(|(limit, value)| keys(limit, value)) {
            let count = self.count(&key, ms);
            let start = if count == 0 { ms } else { self.0[&key].0 };
            self.0.insert(key, (start, count + 1));
        }
        passes
    }
}

fn limits() -> impl Strategy<Value = Vec<Limit>> {
    let rates = prop::collection::btree_map(prop::sample::select(vec![1, 5, 40, 300, 2000]), 0..5u32, 1..3);
    let one = (rates, any::<bool>()).prop_map(|(rates, is_shadow)| {
        let rates: Vec<(u32, u64)> = rates.into_iter().map(|(window, max)| (max, window)).collect();
        Limit { shadow: is_shadow, ..limit_by_value("", &rates) }
    });
    let named = |limits: Vec<Limit>| {
        let name = |n: usize| limit_id("web", "shop", &format!("{n}"));
        limits.into_iter().enumerate().map(|(n, limit)| Limit { id: name(n), ..limit }).collect()
    };
    prop::collection::vec(one, 1..4).prop_map(named)
}

proptest! {
    #[test]
    fn one_thread_decides_as_the_naive_model(
        limits in limits(),
        steps in prop::collection::vec((0..120u64, prop::sample::select(vec!["", "!", "a", "b"]), 0..8usize), 1..120),
    ) {
        let (edge, mut model, mut ms) = (Edge::new(ROOM), Model::default(), 0);
        for (passed, value, mask) in steps {
            ms += passed;
            let applies = |n: &usize| mask & (1 << n) != 0;
            let charges: Vec<(&Limit, &str)> =
                limits.iter().enumerate().filter(|(n, _)| applies(n)).map(|(_, limit)| (limit, value)).collect();
            prop_assert_eq!(edge.decide(ms, &charges).refused_by.is_none(), model.decide(ms, &charges), "at {} ms", ms);
            if passed > 100 {
                edge.counters.sweep_expired(edge.at(ms));
            }
        }
    }
}
