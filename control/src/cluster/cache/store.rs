//! The store on disk: partitions of values by key, each with its position. A batch is one transaction, so after any
//! failure a partition and its position are consistent. The store knows nothing about the cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition, TableError, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::backend::CountedFile;
use super::folder;
use super::seal::Seal;
use super::unusable::{UnusableStore, contained};

/// The version of the stored format. It is increased when more of an object is kept or the encoding changes: a store
/// with an older version is emptied, one with a newer version is left unchanged.
pub const FORMAT: u32 = 2;

/// The size of the page cache in memory, in bytes.
const PAGES_MAX: usize = 4 << 20;

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
/// The positions of all partitions. The name is part of the stored format.
const PARTITIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("collections");
const FORMAT_KEY: &str = "format";
/// The key of an encrypted text, which verifies that the encryption key is the same as before.
const SEAL_KEY: &str = "sealed-by";

/// The position of a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Position {
    /// The resourceVersion of the values; `None` if no watch can be resumed.
    pub resource_version: Option<String>,
    /// The time of the values, in seconds since the epoch.
    pub as_of_s: u64,
    /// Whether the values are complete. A partition that is written for the first time in parts is incomplete until
    /// the last one.
    pub whole: bool,
}

/// The changes to a partition in a batch.
#[derive(Clone, PartialEq, Eq)]
pub struct PartitionChange {
    /// Whether values are encrypted.
    pub sealed: bool,
    /// Whether all values that are not in this change are removed.
    pub replace: bool,
    /// The new or changed values, and the keys of removed ones.
    pub values: BTreeMap<String, Option<Vec<u8>>>,
    /// The new position.
    pub position: Position,
}

/// Values may be Secrets, and are not shown.
impl fmt::Debug for PartitionChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, position) = (self.values.keys(), &self.position);
        f.debug_struct("PartitionChange").field("keys", &keys).field("position", position).finish_non_exhaustive()
    }
}

/// Changes by partition, applied atomically.
pub type Batch = BTreeMap<Arc<str>, PartitionChange>;

/// The stored metadata of a partition.
#[derive(Serialize, Deserialize)]
struct Record {
    sealed: bool,
    position: Position,
}

/// An open store. No other process can open it at the same time.
pub struct Store {
    database: Database,
    seal: Option<Arc<Seal>>,
    written: Arc<AtomicU64>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store in a folder, or creates an empty one. After a crash this recovers the last complete transaction.
    ///
    /// # Errors
    /// Returns the reason if it cannot be used.
    pub fn open(folder: &Path, seal: Option<Arc<Seal>>) -> Result<Self, UnusableStore> {
        let (file, is_new) = folder::open(folder).map_err(|why| UnusableStore::Io(why.to_string()))?;
        let length = file.metadata().map_err(|why| UnusableStore::Io(why.to_string()))?.len();
        let written = Arc::new(AtomicU64::default());
        let counted = Arc::clone(&written);
        let opened = contained(|| {
            let mut builder = Builder::new();
            builder.set_cache_size(PAGES_MAX).set_check_integrity_on_open(true);
            builder.create_with_backend(CountedFile::new(file, counted)?)
        });
        let store = Self { database: opened?, seal, written };
        if length == 0 && !is_new {
            // The library takes it for a new one. Told only now, when no other process has the file.
            return Err(UnusableStore::Damaged("the file is empty".to_owned()));
        }
        contained(|| store.prepare())??;
        Ok(store)
    }

    /// Compares the format version and the key, and writes them to a new store.
    fn prepare(&self) -> Result<Result<(), UnusableStore>, redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut meta = transaction.open_table(META)?;
            let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<u32>().ok());
            let found = meta.get(FORMAT_KEY)?.map(|value| text(value.value()).unwrap_or(u32::MAX));
            match found {
                Some(newer) if newer > FORMAT => return Ok(Err(UnusableStore::Newer)),
                Some(FORMAT) => {}
                Some(_) | None => {
                    remove(&transaction, |_| true)?;
                    meta.insert(FORMAT_KEY, FORMAT.to_string().as_bytes())?;
                    meta.remove(SEAL_KEY)?;
                }
            }
            if self.seal.is_none() {
                // Without a key, the encrypted values are removed, with the text that verifies the key: any key is
                // accepted next time.
                remove(&transaction, |record| record.sealed)?;
                meta.remove(SEAL_KEY)?;
            }
            if let Some(seal) = &self.seal {
                let sealed = meta.get(SEAL_KEY)?.map(|value| value.value().to_vec());
                match sealed {
                    Some(sealed) if seal.open(&[SEAL_KEY], &sealed).is_err() => {
                        return Ok(Err(UnusableStore::WrongKey));
                    }
                    Some(_) => {}
                    None => {
                        let sealed = seal.close(&[SEAL_KEY], FORMAT_KEY.as_bytes());
                        meta.insert(SEAL_KEY, &*sealed.unwrap_or_default())?;
                    }
                }
            }
            // Creates the table for readers.
            transaction.open_table(PARTITIONS)?;
        }
        transaction.commit()?;
        Ok(Ok(()))
    }

    /// Every complete partition, with its position. Encrypted ones are included only with their key.
    ///
    /// # Errors
    /// Returns the reason if it cannot be read.
    pub fn partitions(&self) -> Result<BTreeMap<String, Position>, UnusableStore> {
        contained(|| -> Result<_, redb::Error> {
            let records = self.database.begin_read()?.open_table(PARTITIONS)?;
            let mut found = BTreeMap::new();
            for entry in records.iter()? {
                let (name, record) = entry?;
                let record: Option<Record> = serde_json::from_slice(record.value()).ok();
                let open = |record: &Record| record.position.whole && (!record.sealed || self.seal.is_some());
                found.extend(record.filter(open).map(|record| (name.value().to_owned(), record.position)));
            }
            Ok(found)
        })
    }

    /// Passes each value of a partition to `take`, in the order of the keys.
    ///
    /// # Errors
    /// Returns the reason if it cannot be read, or a value cannot be decrypted.
    pub fn read(&self, partition: &str, mut take: impl FnMut(&str, &[u8])) -> Result<(), UnusableStore> {
        contained(|| -> Result<_, redb::Error> {
            let transaction = self.database.begin_read()?;
            let records = transaction.open_table(PARTITIONS)?;
            let Some(sealed) = record(&records, partition)?.map(|record| record.sealed) else { return Ok(Ok(())) };
            for entry in transaction.open_table(values_of(partition))?.iter()? {
                let (key, value) = entry?;
                if !sealed {
                    take(key.value(), value.value());
                    continue;
                }
                let opened = self.opened(partition, key.value(), value.value());
                let Some(opened) = opened else {
                    return Ok(Err(UnusableStore::Damaged(format!("{} of {partition} cannot be opened", key.value()))));
                };
                take(key.value(), &opened);
            }
            Ok(Ok(()))
        })?
    }

    /// One value; `None` also for a value that cannot be decrypted.
    ///
    /// # Errors
    /// Returns the reason if it cannot be read.
    pub fn get(&self, partition: &str, key: &str) -> Result<Option<Vec<u8>>, UnusableStore> {
        contained(|| -> Result<_, redb::Error> {
            let transaction = self.database.begin_read()?;
            let sealed = record(&transaction.open_table(PARTITIONS)?, partition)?.is_some_and(|record| record.sealed);
            let values = match transaction.open_table(values_of(partition)) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(None),
                values => values?,
            };
            let value = values.get(key)?;
            Ok(value.and_then(|value| {
                if sealed { self.opened(partition, key, value.value()) } else { Some(value.value().to_vec()) }
            }))
        })
    }

    /// The keys of a partition.
    ///
    /// # Errors
    /// Returns the reason if it cannot be read.
    pub fn keys(&self, partition: &str) -> Result<Vec<String>, UnusableStore> {
        contained(|| -> Result<_, redb::Error> {
            let values = match self.database.begin_read()?.open_table(values_of(partition)) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                values => values?,
            };
            names(&values)
        })
    }

    /// Commits a batch atomically and durably. Returns the number of written bytes.
    ///
    /// # Errors
    /// Returns the reason if it cannot be written. The store must be opened again then.
    pub fn commit(&self, batch: &Batch) -> Result<u64, UnusableStore> {
        let before = self.written.load(Ordering::Relaxed);
        contained(|| -> Result<_, redb::Error> {
            let transaction = self.database.begin_write()?;
            for (name, change) in batch {
                if change.replace {
                    transaction.delete_table(values_of(name))?;
                }
                let mut values = transaction.open_table(values_of(name))?;
                for (key, value) in &change.values {
                    match value {
                        None => drop(values.remove(&**key)?),
                        Some(value) if change.sealed => {
                            let sealed = self.seal.as_ref().and_then(|seal| seal.close(&[name, key], value));
                            // Without a key or random bytes, the value is omitted rather than written in plain text.
                            let Some(sealed) = sealed else { continue };
                            values.insert(&**key, &*sealed)?;
                        }
                        Some(value) => drop(values.insert(&**key, &**value)?),
                    }
                }
                let record = Record { sealed: change.sealed, position: change.position.clone() };
                let record = serde_json::to_vec(&record).unwrap_or_default();
                transaction.open_table(PARTITIONS)?.insert(&**name, &*record)?;
            }
            Ok(transaction.commit()?)
        })?;
        Ok(self.written.load(Ordering::Relaxed).saturating_sub(before))
    }

    /// Removes the resourceVersions of all partitions: they belong to another API server.
    ///
    /// # Errors
    /// Returns the reason if it cannot be written.
    pub fn forget_versions(&self) -> Result<(), UnusableStore> {
        contained(|| -> Result<_, redb::Error> {
            let transaction = self.database.begin_write()?;
            {
                let mut records = transaction.open_table(PARTITIONS)?;
                for name in names(&records)? {
                    let Some(mut found) = record(&records, &name)? else { continue };
                    found.position.resource_version = None;
                    records.insert(&*name, &*serde_json::to_vec(&found).unwrap_or_default())?;
                }
            }
            Ok(transaction.commit()?)
        })
    }

    /// Removes all other partitions.
    ///
    /// # Errors
    /// Returns the reason if it cannot be written.
    pub fn retain(&self, these: impl Fn(&str) -> bool) -> Result<(), UnusableStore> {
        contained(|| -> Result<_, redb::Error> {
            let gone = names(&self.database.begin_read()?.open_table(PARTITIONS)?)?;
            let gone: Vec<String> = gone.into_iter().filter(|name| !these(name)).collect();
            if gone.is_empty() {
                return Ok(());
            }
            let transaction = self.database.begin_write()?;
            for name in &gone {
                transaction.open_table(PARTITIONS)?.remove(&**name)?;
                transaction.delete_table(values_of(name))?;
            }
            Ok(transaction.commit()?)
        })
    }

    /// The number of bytes written to the file since it was opened.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn opened(&self, partition: &str, key: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        self.seal.as_ref().and_then(|seal| seal.open(&[partition, key], sealed).ok())
    }
}

/// The table of a partition's values. No other table has this name.
const fn values_of(partition: &str) -> TableDefinition<'_, &'static str, &'static [u8]> {
    TableDefinition::new(partition)
}

fn names(table: &impl ReadableTable<&'static str, &'static [u8]>) -> Result<Vec<String>, redb::Error> {
    let mut names = Vec::new();
    for entry in table.iter()? {
        names.push(entry?.0.value().to_owned());
    }
    Ok(names)
}

fn record(
    records: &impl ReadableTable<&'static str, &'static [u8]>,
    partition: &str,
) -> Result<Option<Record>, redb::Error> {
    Ok(records.get(partition)?.and_then(|record| serde_json::from_slice(record.value()).ok()))
}

/// Removes the partitions that match.
fn remove(transaction: &WriteTransaction, of: impl Fn(&Record) -> bool) -> Result<(), redb::Error> {
    let mut records = transaction.open_table(PARTITIONS)?;
    for name in names(&records)? {
        if record(&records, &name)?.as_ref().is_none_or(&of) {
            records.remove(&*name)?;
            transaction.delete_table(values_of(&name))?;
        }
    }
    Ok(())
}
