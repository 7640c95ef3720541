//! Lists that are sets or maps by their schema (`x-kubernetes-list-type`): order means nothing when they are compared,
//! and `+` joins them. <https://kubernetes.io/docs/reference/using-api/cel/#cel-types-and-resources>

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cel::ExecutionError;
use cel::common::traits::{Adder, Container, Indexer, Iterable, Sizer, Zeroer};
use cel::common::types::{CelList, CelString, Type};
use cel::common::value::{Builtin, BuiltinRef, CowVal, Val};

use super::library::{NO_OVERLOAD, elements};

/// A list whose elements are told apart by their values, or by the values of some fields.
#[derive(Debug)]
pub(super) struct KeyedList<'v> {
    list: CelList<'v>,
    /// `None` for a set.
    fields: Option<Arc<[String]>>,
}

impl<'v> KeyedList<'v> {
    pub(super) fn new(elements: Vec<Box<dyn Val + 'v>>, fields: Option<Arc<[String]>>) -> Self {
        Self { list: elements.into(), fields }
    }

    /// A text that is the same for elements that are one to this list, and for no others.
    fn key(&self, element: &dyn Val) -> String {
        let Some(fields) = &self.fields else { return format!("{element:?}") };
        let value = |field: &String| {
            let name = CelString::from(field.as_str());
            element.as_indexer().and_then(|element| Some(format!("{:?}", element.get(&name).ok()?.as_ref())))
        };
        format!("{:?}", fields.iter().map(value).collect::<Vec<_>>())
    }
}

impl<'v> Val for KeyedList<'v> {
    fn get_type(&self) -> &Type {
        <Self as Val>::cel_type()
    }

    fn cel_type() -> &'static Type {
        CelList::cel_type()
    }

    fn as_adder<'b, 'w>(&'b self) -> Option<&'b (dyn Adder + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn as_container(&self) -> Option<&dyn Container> {
        self.list.as_container()
    }

    fn as_indexer<'b, 'w>(&'b self) -> Option<&'b (dyn Indexer + 'w)>
    where
        Self: 'w,
    {
        self.list.as_indexer()
    }

    fn into_indexer<'w>(self: Box<Self>) -> Option<Box<dyn Indexer + 'w>>
    where
        Self: 'w,
    {
        Some(Box::new(self.list))
    }

    fn as_iterable<'b, 'w>(&'b self) -> Option<&'b (dyn Iterable + 'w)>
    where
        Self: 'w,
    {
        self.list.as_iterable()
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        self.list.as_sizer()
    }

    fn as_zeroer(&self) -> Option<&dyn Zeroer> {
        self.list.as_zeroer()
    }

    fn equals(&self, other: &dyn Val) -> bool {
        let Ok(other) = elements(other) else { return false };
        if self.list.inner().len() != other.len() {
            return false;
        }
        if self.fields.is_none() {
            let known: BTreeSet<String> = self.list.inner().iter().map(|one| self.key(one.as_ref())).collect();
            return other.iter().all(|one| known.contains(&self.key(*one)));
        }
        let known: BTreeMap<String, _> = self.list.inner().iter().map(|one| (self.key(one.as_ref()), one)).collect();
        other.iter().all(|one| known.get(&self.key(*one)).is_some_and(|known| known.equals(*one)))
    }

    fn clone_as_boxed<'w>(&self) -> Box<dyn Val + 'w>
    where
        Self: 'w,
    {
        Box::new(Self { list: self.list.clone(), fields: self.fields.clone() })
    }

    // To everything else it is a list as any other.
    fn as_builtin<'b, 'w>(&'b self) -> BuiltinRef<'b, 'w>
    where
        Self: 'w,
    {
        BuiltinRef::List(&self.list)
    }

    fn into_builtin<'w>(self: Box<Self>) -> Option<Builtin<'w>>
    where
        Self: 'w,
    {
        Some(Builtin::List(self.list))
    }
}

impl Adder for KeyedList<'_> {
    /// The elements of both. One that both have stays where it was: of a set as it is, and of a map as the other list
    /// has it.
    fn add<'b, 'w>(&'b self, other: &(dyn Val + 'w)) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let more = elements(other).map_err(|_| ExecutionError::function_error("_+_", NO_OVERLOAD))?;
        let mut all: Vec<Box<dyn Val + 'w>> = self.list.inner().iter().map(|one| one.clone_as_boxed()).collect();
        let mut places: BTreeMap<String, usize> =
            all.iter().enumerate().map(|(nth, one)| (self.key(one.as_ref()), nth)).collect();
        for one in more {
            let key = self.key(one);
            match places.get(&key).and_then(|nth| all.get_mut(*nth)) {
                Some(_) if self.fields.is_none() => {}
                Some(place) => *place = one.clone_as_boxed(),
                None => {
                    places.insert(key, all.len());
                    all.push(one.clone_as_boxed());
                }
            }
        }
        Ok(CowVal::owned(KeyedList::new(all, self.fields.clone())))
    }
}
