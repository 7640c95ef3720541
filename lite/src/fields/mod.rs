//! The fields of built-in kinds, as tables: which there are, how lists merge, and whether an object fits.

mod chart_table;
pub(crate) mod fit;
pub(crate) mod format;
mod pod_table;
pub(crate) mod schema;
mod schema_table;
