//! Macros with two variables, the place and the element of a list or the key and the value of a map
//! (<https://pkg.go.dev/github.com/google/cel-go/ext#TwoVarComprehensions>).
//!
//! The crate evaluates comprehensions with one variable. So these go over the list of pairs that `@pairs` makes, and
//! bind both names around each of their arguments: a binding is a comprehension over nothing, whose accumulator has the
//! name.

use std::collections::HashMap;

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators};
use cel::common::types::{CelInt, CelList, CelMap, CelMapKey, CelString, LIST_TYPE, MAP_TYPE};
use cel::common::value::{BuiltinRef, CowVal, Val};
use cel::parser::{Macro, MacroExprHelper, ParseError};
use cel::{DeclarationError, Env, ExecutionError};

use super::{arguments, elements, failed};

/// Names that no rule can write.
const PAIR: &str = "@pair";
const RESULT: &str = "@result";
const PAIRS: &str = "@pairs";
const MAP: &str = "@map";

pub(super) fn extend(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload(PAIRS, "@pairs(list)", vec![LIST_TYPE], pairs_of_list)?;
    env.add_overload(PAIRS, "@pairs(map)", vec![MAP_TYPE], pairs_of_map)?;
    env.add_overload(MAP, "@map(list)", vec![LIST_TYPE], map_of_pairs)?;
    for (name, arguments, expand) in [
        ("all", 3, all as Expand),
        ("exists", 3, exists),
        ("existsOne", 3, exists_one),
        ("exists_one", 3, exists_one),
        ("transformList", 3, transform_list),
        ("transformList", 4, transform_list),
        ("transformMap", 3, transform_map),
        ("transformMap", 4, transform_map),
        ("transformMapEntry", 3, transform_map_entry),
        ("transformMapEntry", 4, transform_map_entry),
    ] {
        env.add_macro(Macro::receiver(name, arguments, move |helper, target, args| {
            let Some(range) = target.take() else { return Ok(None) };
            let mut loops = Loop::new(helper, args)?;
            expand(&mut loops, std::mem::take(args), range).map(Some)
        }))?;
    }
    Ok(())
}

type Expand = fn(&mut Loop<'_, '_>, Vec<IdedExpr>, IdedExpr) -> Result<IdedExpr, ParseError>;

/// A comprehension over pairs that is being written.
struct Loop<'a, 'h> {
    helper: &'a mut MacroExprHelper<'h>,
    first: String,
    second: String,
}

impl<'a, 'h> Loop<'a, 'h> {
    /// Takes the two names off the arguments.
    fn new(helper: &'a mut MacroExprHelper<'h>, args: &mut Vec<IdedExpr>) -> Result<Self, ParseError> {
        let mut name = |helper: &mut MacroExprHelper<'h>| {
            let one = args.remove(0);
            match one.expr {
                Expr::Ident(name) => Ok(name),
                Expr::Unspecified
                | Expr::Call(_)
                | Expr::Comprehension(_)
                | Expr::List(_)
                | Expr::Literal(_)
                | Expr::Map(_)
                | Expr::Select(_)
                | Expr::Struct(_) => Err(helper.new_error(one.id, "argument must be a simple name")),
            }
        };
        let (first, second) = (name(helper)?, name(helper)?);
        Ok(Self { helper, first, second })
    }

    fn name(&mut self, name: &str) -> IdedExpr {
        self.helper.next_expr(Expr::Ident(name.to_owned()))
    }

    fn literal(&mut self, literal: LiteralValue) -> IdedExpr {
        self.helper.next_expr(Expr::Literal(literal))
    }

    fn call(&mut self, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
        self.helper.next_expr(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
    }

    fn list(&mut self, elements: Vec<IdedExpr>) -> IdedExpr {
        self.helper.next_expr(Expr::List(ListExpr::new(elements)))
    }

    /// An argument, with both names bound to the values of the pair.
    fn bound(&mut self, argument: IdedExpr) -> IdedExpr {
        let (first, second) = (self.first.clone(), self.second.clone());
        let inner = self.bind(second, 1, argument);
        self.bind(first, 0, inner)
    }

    fn bind(&mut self, name: String, place: i64, result: IdedExpr) -> IdedExpr {
        let pair = self.name(PAIR);
        let place = self.literal(LiteralValue::Int(place.into()));
        let accu_init = self.call(operators::INDEX, vec![pair, place]);
        let iter_range = self.list(Vec::new());
        let loop_cond = self.literal(LiteralValue::Boolean(false.into()));
        let loop_step = self.name(&name);
        self.helper.next_expr(Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range,
            iter_var: "@unused".to_owned(),
            iter_var2: None,
            accu_var: name,
            accu_init,
            loop_cond,
            loop_step,
            result,
        })))
    }

    /// The comprehension: its range, the first value of `@result`, its loop condition, the next value, and the result
    /// made from the last.
    fn over(&mut self, range: IdedExpr, parts: [IdedExpr; 4]) -> IdedExpr {
        let [accu_init, loop_cond, loop_step, result] = parts;
        let iter_range = self.call(PAIRS, vec![range]);
        self.helper.next_expr(Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range,
            iter_var: PAIR.to_owned(),
            iter_var2: None,
            accu_var: RESULT.to_owned(),
            accu_init,
            loop_cond,
            loop_step,
            result,
        })))
    }

    /// A list of the results of the last argument, for the pairs that meet the argument before it, if there is one.
    fn gathered(
        &mut self,
        mut args: Vec<IdedExpr>,
        range: IdedExpr,
        pair: bool,
        map: bool,
    ) -> Result<IdedExpr, ParseError> {
        let Some(made) = args.pop() else { return Err(self.helper.new_error(range.id, "an argument is missing")) };
        let made = if pair {
            let key = self.name(&self.first.clone());
            self.list(vec![key, made])
        } else {
            made
        };
        let made = self.bound(made);
        let made = self.list(vec![made]);
        let before = self.name(RESULT);
        let mut step = self.call(operators::ADD, vec![before, made]);
        if let Some(filter) = args.pop() {
            let filter = self.bound(filter);
            let before = self.name(RESULT);
            step = self.call(operators::CONDITIONAL, vec![filter, step, before]);
        }
        let (init, go_on, last) =
            (self.list(Vec::new()), self.literal(LiteralValue::Boolean(true.into())), self.name(RESULT));
        let last = if map { self.call(MAP, vec![last]) } else { last };
        Ok(self.over(range, [init, go_on, step, last]))
    }

    /// The only argument that is left.
    fn condition(&mut self, mut args: Vec<IdedExpr>, range: &IdedExpr) -> Result<IdedExpr, ParseError> {
        let condition = args.pop().ok_or_else(|| self.helper.new_error(range.id, "an argument is missing"))?;
        Ok(self.bound(condition))
    }
}

fn all(loops: &mut Loop<'_, '_>, args: Vec<IdedExpr>, range: IdedExpr) -> Result<IdedExpr, ParseError> {
    let condition = loops.condition(args, &range)?;
    let (init, so_far, before, last) =
        (loops.literal(LiteralValue::Boolean(true.into())), loops.name(RESULT), loops.name(RESULT), loops.name(RESULT));
    let go_on = loops.call(operators::NOT_STRICTLY_FALSE, vec![so_far]);
    let step = loops.call(operators::LOGICAL_AND, vec![before, condition]);
    Ok(loops.over(range, [init, go_on, step, last]))
}

fn exists(loops: &mut Loop<'_, '_>, args: Vec<IdedExpr>, range: IdedExpr) -> Result<IdedExpr, ParseError> {
    let condition = loops.condition(args, &range)?;
    let (init, so_far, before, last) = (
        loops.literal(LiteralValue::Boolean(false.into())),
        loops.name(RESULT),
        loops.name(RESULT),
        loops.name(RESULT),
    );
    let not_yet = loops.call(operators::LOGICAL_NOT, vec![so_far]);
    let go_on = loops.call(operators::NOT_STRICTLY_FALSE, vec![not_yet]);
    let step = loops.call(operators::LOGICAL_OR, vec![before, condition]);
    Ok(loops.over(range, [init, go_on, step, last]))
}

fn exists_one(loops: &mut Loop<'_, '_>, args: Vec<IdedExpr>, range: IdedExpr) -> Result<IdedExpr, ParseError> {
    let condition = loops.condition(args, &range)?;
    let number = |loops: &mut Loop<'_, '_>, number: i64| loops.literal(LiteralValue::Int(number.into()));
    let (init, one, before, same) = (number(loops, 0), number(loops, 1), loops.name(RESULT), loops.name(RESULT));
    let more = loops.call(operators::ADD, vec![before, one]);
    let step = loops.call(operators::CONDITIONAL, vec![condition, more, same]);
    let go_on = loops.literal(LiteralValue::Boolean(true.into()));
    let (count, one) = (loops.name(RESULT), number(loops, 1));
    let last = loops.call(operators::EQUALS, vec![count, one]);
    Ok(loops.over(range, [init, go_on, step, last]))
}

fn transform_list(loops: &mut Loop<'_, '_>, args: Vec<IdedExpr>, range: IdedExpr) -> Result<IdedExpr, ParseError> {
    loops.gathered(args, range, false, false)
}

fn transform_map(loops: &mut Loop<'_, '_>, args: Vec<IdedExpr>, range: IdedExpr) -> Result<IdedExpr, ParseError> {
    loops.gathered(args, range, true, true)
}

fn transform_map_entry(loops: &mut Loop<'_, '_>, args: Vec<IdedExpr>, range: IdedExpr) -> Result<IdedExpr, ParseError> {
    loops.gathered(args, range, false, true)
}

fn pair<'v>(first: Box<dyn Val + 'v>, second: Box<dyn Val + 'v>) -> Box<dyn Val + 'v> {
    Box::new(CelList::from(vec![first, second]))
}

fn pairs_of_list<'b, 'v>(given: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [list] = arguments(given)?;
    let elements = elements(list.as_ref())?;
    let pairs = (0_i64..).zip(elements).map(|(nth, one)| pair(Box::new(CelInt::from(nth)), one.clone_as_boxed()));
    Ok(CowVal::owned(CelList::from(pairs.collect::<Vec<_>>())))
}

fn pairs_of_map<'b, 'v>(given: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [map] = arguments(given)?;
    let index = map.as_indexer().ok_or_else(|| failed(PAIRS, super::NO_OVERLOAD))?;
    let keys = elements(map.as_ref())?;
    let pairs = keys.into_iter().map(|key| Ok(pair(key.clone_as_boxed(), index.get(key)?.into_owned())));
    Ok(CowVal::owned(CelList::from(pairs.collect::<Result<Vec<_>, ExecutionError>>()?)))
}

/// The map of a list of pairs, or of maps. A key that is there twice is an error.
fn map_of_pairs<'b, 'v>(given: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [list] = arguments(given)?;
    let mut map: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>> = HashMap::new();
    let mut insert = |key: Box<dyn Val + 'v>, value: Box<dyn Val + 'v>| {
        let shown =
            key.downcast_ref::<CelString<'_>>().map_or_else(|| format!("{key:?}"), |text| text.inner().to_owned());
        let key = CelMapKey::try_from(key).map_err(|_| failed(MAP, "unsupported key type"))?;
        match map.insert(key, value) {
            Some(_) => Err(failed(MAP, format!("insert failed: key {shown} already exists"))),
            None => Ok(()),
        }
    };
    for one in elements(list.as_ref())? {
        if let BuiltinRef::Map(entries) = one.as_builtin() {
            for key in elements(entries)? {
                let value = one.as_indexer().ok_or_else(|| failed(MAP, super::NO_OVERLOAD))?.get(key)?.into_owned();
                insert(key.clone_as_boxed(), value)?;
            }
            continue;
        }
        let [key, value] = elements(one)?[..] else { return Err(failed(MAP, super::NO_OVERLOAD)) };
        insert(key.clone_as_boxed(), value.clone_as_boxed())?;
    }
    Ok(CowVal::owned(CelMap::from(map)))
}
