//! Which files of databases are the index of nobody, and may go?

use super::Step;
use crate::index::database::{PREFIX, prefix_of};
use crate::index::{Index, IndexError};
use crate::store::{ObjectName, ObjectPrefix, Store};

/// Names in a page of a listing.
const PAGE: usize = 1000;

/// The generation that a file of a database belongs to.
fn generation_of(name: &ObjectName) -> Option<u64> {
    let segment = name.segments().nth(1)?;
    match segment.strip_prefix('g') {
        Some(digits) if digits.len() == 16 => u64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => (segment.len() == 2).then_some(0),
    }
}

fn prefix(text: &str) -> ObjectPrefix {
    match ObjectPrefix::parse(text) {
        Ok(prefix) => prefix,
        Err(error) => unreachable!("digits and slashes are a prefix: {error}"),
    }
}

/// Deletes the files below a prefix that `may_go`; answers how many went.
async fn delete(
    store: &dyn Store,
    below: &str,
    may_go: impl Fn(&ObjectName) -> bool + Send,
) -> Result<u64, IndexError> {
    let (below, mut after, mut gone) = (prefix(below), None, 0);
    loop {
        let page = store.list(&below, after.as_ref(), PAGE).await?;
        for listed in page.objects.iter().filter(|listed| may_go(&listed.name)) {
            store.delete(&listed.name).await?;
            gone += 1;
        }
        after = page.objects.last().map(|listed| listed.name.clone());
        if !page.more || after.is_none() {
            return Ok(gone);
        }
    }
}

/// Deletes databases that were given up.
pub(super) async fn delete_generation(store: &dyn Store, generation: u64) -> Result<u64, IndexError> {
    delete(store, &prefix_of(generation), |_| true).await
}

/// Deletes all databases but those of a generation, and those of `from` on, which others may be making.
pub(super) async fn delete_others(
    store: &dyn Store,
    generation: u64,
    from: u64,
    tell: &(dyn Fn(Step) + Send + Sync),
) -> Result<u64, IndexError> {
    tell(Step { what: "removal of the old index", done: 0, total: 1 });
    let may_go = |name: &ObjectName| generation_of(name).is_some_and(|found| found != generation && found < from);
    let gone = delete(store, PREFIX, may_go).await?;
    tell(Step { what: "removal of the old index", done: 1, total: 1 });
    Ok(gone)
}

impl Index {
    /// Deletes databases that were the index, or were to be, before this tenure began.
    ///
    /// # Errors
    /// [`IndexError`] when the store fails; what is left goes another time.
    pub async fn delete_old_generations(&self) -> Result<(), IndexError> {
        let from = self.owner.incarnation.get();
        let gone = delete_others(&*self.store, self.generation, from, &|_| ()).await?;
        if gone > 0 {
            tracing::info!(files = gone, "databases that were the index before are deleted");
        }
        Ok(())
    }
}
