//! The fields of built-in kinds, as tables: their names and types, the merging of lists, and the check of an object.

mod chart_table;
pub(crate) mod fit;
pub(crate) mod format;
mod pod_table;
pub(crate) mod schema;
mod schema_table;
