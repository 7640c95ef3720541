//! The objects on disk: one table, written in transactions, in a folder that only its user can enter. It treats objects
//! as bytes under their names; the store interprets them.

mod failed;
mod folder;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use redb::backends::FileBackend;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};

pub use self::failed::DataDirError;
use self::failed::contained;

/// The version of the contents. A folder of a newer version is left alone.
const FORMAT: u64 = 1;
/// Pages that are kept in memory, in bytes. The objects are in memory anyway.
const PAGES_MAX: usize = 4 << 20;

/// Objects as JSON, by kind (`plural.group`), namespace and name.
const OBJECTS: TableDefinition<'_, (&str, &str, &str), &[u8]> = TableDefinition::new("objects");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const FORMAT_KEY: &str = "format";
const VERSION_KEY: &str = "resourceVersion";
const SERIAL_KEY: &str = "serial";

/// The name of an object on disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// `plural.group`, the same for every version of the kind.
    pub(crate) kind: Arc<str>,
    /// Empty for kinds without namespaces.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Changes that become durable together: the objects that are new or different, and `None` for those that are gone.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) objects: BTreeMap<Name, Option<Bytes>>,
    /// The resourceVersion of the last change.
    pub(crate) version: u64,
    /// The number of changes since the folder was created.
    pub(crate) serial: u64,
}

/// An open folder. No other process can open it meanwhile.
pub(crate) struct Disk {
    database: Database,
}

impl Disk {
    /// Opens a folder, or creates an empty one. Transactions that a crash left incomplete are rolled back.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(crate) fn open(folder: &Path) -> Result<Self, DataDirError> {
        let (file, is_new) = folder::open(folder).map_err(|why| DataDirError::Io(why.to_string()))?;
        let length = file.metadata().map_err(|why| DataDirError::Io(why.to_string()))?.len();
        if length == 0 && !is_new {
            // The library takes it for a new one.
            return Err(DataDirError::Damaged("the file is empty".to_owned()));
        }
        let opened = contained(|| {
            let mut builder = Builder::new();
            builder.set_cache_size(PAGES_MAX).set_check_integrity_on_open(true);
            builder.create_with_backend(FileBackend::new(file)?)
        });
        let disk = Self { database: opened? };
        contained(|| disk.prepare())??;
        Ok(disk)
    }

    /// Creates the tables, and compares the version of the contents.
    fn prepare(&self) -> Result<Result<(), DataDirError>, redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut numbers = transaction.open_table(NUMBERS)?;
            let found = numbers.get(FORMAT_KEY)?.map(|value| value.value());
            if found.is_some_and(|found| found > FORMAT) {
                return Ok(Err(DataDirError::Newer));
            }
            numbers.insert(FORMAT_KEY, FORMAT)?;
            transaction.open_table(OBJECTS)?;
        }
        transaction.commit()?;
        Ok(Ok(()))
    }

    /// Reads everything.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn read(&self) -> Result<Batch, DataDirError> {
        contained(|| -> Result<_, redb::Error> {
            let transaction = self.database.begin_read()?;
            let numbers = transaction.open_table(NUMBERS)?;
            let number = |key: &str| Ok::<_, redb::Error>(numbers.get(key)?.map_or(0, |value| value.value()));
            let (version, serial) = (number(VERSION_KEY)?, number(SERIAL_KEY)?);
            let mut objects = BTreeMap::new();
            for entry in transaction.open_table(OBJECTS)?.iter()? {
                let (key, value) = entry?;
                let (kind, namespace, name) = key.value();
                let name = Name { kind: kind.into(), namespace: namespace.to_owned(), name: name.to_owned() };
                objects.insert(name, Some(Bytes::copy_from_slice(value.value())));
            }
            Ok(Batch { objects, version, serial })
        })
    }

    /// Makes all of a batch durable, or nothing of it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn commit(&self, batch: &Batch) -> Result<(), DataDirError> {
        contained(|| -> Result<_, redb::Error> {
            let transaction = self.database.begin_write()?;
            {
                let mut objects = transaction.open_table(OBJECTS)?;
                for (name, value) in &batch.objects {
                    let key = (&*name.kind, &*name.namespace, &*name.name);
                    match value {
                        Some(value) => drop(objects.insert(key, &**value)?),
                        None => drop(objects.remove(key)?),
                    }
                }
                let mut numbers = transaction.open_table(NUMBERS)?;
                numbers.insert(VERSION_KEY, batch.version)?;
                numbers.insert(SERIAL_KEY, batch.serial)?;
            }
            Ok(transaction.commit()?)
        })
    }
}

#[cfg(test)]
mod tests;
