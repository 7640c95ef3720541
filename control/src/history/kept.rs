//! Models whose routes can be restored, limited by their memory: models share equal parts, so the cost of one is the
//! number of routes that later ones replaced.

use std::collections::{BTreeSet, VecDeque};

use tidegate_config::model::{Generation, SnapshotParts};

use super::changes::Publication;
use crate::compile::Unit;
use crate::sample::Sample;

/// The models of generations with different routes, the newest last.
#[derive(Debug)]
pub(super) struct RetainedModels {
    models_max: usize,
    routes_max: usize,
    models: VecDeque<Model>,
    /// The generation that an operator holds or held last.
    held: Option<Generation>,
}

/// A model that can be restored.
#[derive(Debug)]
struct Model {
    /// The generations with these routes.
    first: Generation,
    last: Generation,
    parts: SnapshotParts,
    /// The number of its routes.
    routes: usize,
    /// The number of its routes that the next model does not share.
    replaced: usize,
}

impl Model {
    fn had(&self, generation: Generation) -> bool {
        self.first <= generation && generation <= self.last
    }
}

/// The differences in routes between two consecutive models.
struct Difference {
    any: bool,
    /// The units that differ.
    units: Sample<Unit>,
    replaced: usize,
    added: usize,
}

impl Difference {
    /// Compares two models, unit by unit.
    fn between(before: &SnapshotParts, after: &SnapshotParts) -> Self {
        let [gone, new] = [(before, after), (after, before)].map(|(one, other)| Unit::changed_between(one, other));
        let weight = |units: &[Unit], of| units.iter().map(|unit| unit.weight(of)).sum();
        let (replaced, added) = (weight(&gone, before), weight(&new, after));
        let different: BTreeSet<Unit> = gone.into_iter().chain(new).collect();
        let (any, mut units) = (!different.is_empty(), Sample::default());
        different.into_iter().for_each(|unit| units.add(|| unit));
        Self { any, units, replaced, added }
    }
}

impl RetainedModels {
    pub(super) const fn new(models_max: usize, routes_max: usize) -> Self {
        Self { models_max, routes_max, models: VecDeque::new(), held: None }
    }

    /// Keeps the model of a publication, if its routes have changed. If the whole model had to be compared with the one
    /// before it, the publication gets the units that differ.
    pub(super) fn record(&mut self, publication: &mut Publication, parts: &SnapshotParts) {
        let Publication { generation, changes, held, .. } = publication;
        self.held = held.or(self.held);
        let Some(newest) = self.models.back_mut() else {
            if changes.units.routes() || changes.whole() {
                let Difference { added, .. } = Difference::between(&SnapshotParts::default(), parts);
                self.push(*generation, parts, added);
            }
            return;
        };
        let (any, replaced, added) = if changes.whole() {
            let Difference { any, units, replaced, added } = Difference::between(&newest.parts, parts);
            changes.units.routing = units;
            (any, replaced, added)
        } else {
            (changes.units.routes(), changes.units.replaced, changes.units.added)
        };
        if !any {
            newest.last = *generation;
            return;
        }
        newest.replaced = replaced;
        let routes = newest.routes.saturating_sub(replaced) + added;
        self.push(*generation, parts, routes);
        self.forget();
    }

    /// The oldest generation from which all later ones can be restored, and the newest.
    pub(super) fn range(&self) -> Option<(Generation, Generation)> {
        let mut models = self.models.iter().rev();
        let newest = models.next()?;
        let mut oldest = newest.first;
        for model in models {
            if model.last.0 + 1 != oldest.0 {
                break;
            }
            oldest = model.first;
        }
        Some((oldest, newest.last))
    }

    /// The last held generation, if it can be restored and is older than the range.
    pub(super) fn apart(&self) -> Option<Generation> {
        let (oldest, _) = self.range()?;
        self.held.filter(|held| *held < oldest && self.parts(*held).is_some())
    }

    /// The routes of a generation, if they are kept.
    pub(super) fn parts(&self, generation: Generation) -> Option<&SnapshotParts> {
        self.models.iter().rev().find(|model| model.had(generation)).map(|model| &model.parts)
    }

    fn push(&mut self, generation: Generation, parts: &SnapshotParts, routes: usize) {
        let (first, last, parts) = (generation, generation, parts.clone());
        self.models.push_back(Model { first, last, parts, routes, replaced: 0 });
    }

    /// Removes the oldest models beyond the limits, except the ones that an operator may need most.
    fn forget(&mut self) {
        while self.models.len() > self.models_max || self.spare() > self.spare_max() {
            let Some(index) = self.forgettable().next() else { return };
            let Some(gone) = self.models.remove(index) else { return };
            // The parts that the model before it shared with it now belong to that one alone.
            if let Some(before) = index.checked_sub(1).and_then(|index| self.models.get_mut(index)) {
                before.replaced = (before.replaced + gone.replaced).min(before.routes);
            }
        }
    }

    /// The indexes of all models except the newest, the one before it, and the last held one: a broken model must not
    /// displace the one it broke, and a long hold must not displace the held one.
    fn forgettable(&self) -> impl Iterator<Item = usize> {
        let older = self.models.iter().take(self.models.len().saturating_sub(2)).enumerate();
        let held = |model: &Model| self.held.is_some_and(|held| model.had(held));
        older.filter(move |(_, model)| !held(model)).map(|(index, _)| index)
    }

    /// The number of routes of the others that no longer serve. Those that a command has restored still count.
    fn spare(&self) -> usize {
        self.forgettable().filter_map(|index| self.models.get(index)).map(|model| model.replaced).sum()
    }

    /// A whole model may be replaced step by step and must not be removed, because then it is needed.
    fn spare_max(&self) -> usize {
        self.routes_max + self.models.iter().map(|model| model.routes).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
