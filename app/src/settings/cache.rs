//! The cluster cache on disk.

use tidegate_control::CacheOptions;

use super::pace::within;
use super::{InvalidValue, time};
use crate::args::CacheArgs;

/// Reads the settings of the cache, if there is to be one; the address of the API server is added later.
pub(super) fn read(args: &CacheArgs) -> Result<Option<CacheOptions>, InvalidValue> {
    let flush_after = time("--cache-write-after", &args.cache_write_after)?;
    let budget_mib: u64 = within("--cache-write-budget", &args.cache_write_budget, 1..=1 << 20)?;
    let Some(folder) = args.cache_dir.clone() else { return Ok(None) };
    if folder.as_os_str().is_empty() {
        return Err(InvalidValue::new("--cache-dir", "", "names no folder"));
    }
    let key_file = args.cache_key_file.clone();
    Ok(Some(CacheOptions { folder, key_file, write_budget: budget_mib << 20, flush_after, server: String::new() }))
}
