//! How is the store that is measured named and asked?

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bench::store::{Objects, StoreFault, StoreOptions, StoreReport};
use bytes::Bytes;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use control::store::{ObjectName, PutNonce, Span, Store, StoreError};
use tuning::units::{Bytes as Size, Millis};
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::super::failure::Failure;
use super::Watch;
use crate::novad::{StoreFlags, store_flags};

/// The flags that say which store, as novad has them.
#[derive(Debug, Clone)]
pub(in crate::nova) struct StoreArgs {
    matches: ArgMatches,
    is_said: bool,
}

impl Args for StoreArgs {
    fn augment_args(command: Command) -> Command {
        let flags = store_flags().map(|flag| flag.help_heading("The store"));
        command.args(flags)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for StoreArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_said = matches.value_source("store") == Some(ValueSource::CommandLine);
        Ok(Self { matches: matches.clone(), is_said })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl StoreArgs {
    /// Whether a store was named on the command line.
    pub(super) const fn is_said(&self) -> bool {
        self.is_said
    }

    fn open(&self) -> Result<StoreFlags, Failure> {
        crate::novad::open_store(&self.matches)
            .map_err(|(reason, message)| Failure::from(Refusal::new(reason, message)))
    }

    /// Measures the store, which is opened as novad opens it.
    pub(super) fn measure(&self, ladder: Ladder, watch: &Watch) -> Result<StoreReport, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::Local(format!("a runtime can't be started: {error}")))?;
        runtime.block_on(async {
            let StoreFlags { store, address } = self.open()?;
            let options = ladder.options(address);
            let objects = OfStore::new(store).map_err(|error| Failure::Local(format!("no random number: {error}")))?;
            Ok(bench::store::run(&options, &objects, &mut |progress| watch.see(progress)).await?)
        })
    }
}

/// What the sizes, depths and times of a ladder are.
#[derive(Debug, Clone, Args)]
pub(in crate::nova) struct Ladder {
    /// Sizes of the objects [default: 4KiB,64KiB,512KiB,8MiB]
    #[arg(long = "sizes", alias = "size", value_name = "BYTES,…", value_delimiter = ',')]
    pub(super) sizes: Vec<Size>,
    /// Operations in flight at once, in turn at each size [default: 1,8]
    #[arg(long = "depths", alias = "depth", value_name = "N,…", value_delimiter = ',')]
    pub(super) depths: Vec<usize>,
    /// How long puts are measured at each size and depth [default: 2s]
    #[arg(long = "duration", value_name = "TIME")]
    pub(super) duration: Option<Millis>,
    /// Bytes that a size and depth puts at most [default: 512MiB]
    #[arg(long = "rung-bytes-max", value_name = "BYTES")]
    pub(super) rung_bytes_max: Option<Size>,
}

impl Ladder {
    fn options(self, store: String) -> StoreOptions {
        let ladder = StoreOptions::ladder(store);
        StoreOptions {
            sizes: if self.sizes.is_empty() {
                ladder.sizes
            } else {
                self.sizes.into_iter().map(Size::as_usize).collect()
            },
            depths: if self.depths.is_empty() { ladder.depths } else { self.depths },
            rung: self.duration.map_or(ladder.rung, Millis::duration),
            rung_bytes_max: self.rung_bytes_max.map_or(ladder.rung_bytes_max, Size::get),
            store: ladder.store,
        }
    }
}

#[derive(Debug, Args)]
pub(in crate::nova) struct StoreBenchArgs {
    #[command(flatten)]
    pub(super) ladder: Ladder,
    #[command(flatten)]
    pub(super) store: StoreArgs,
}

/// Objects of a store, below a prefix that nobody else has.
pub(in crate::nova) struct OfStore {
    store: Arc<dyn Store>,
    prefix: String,
    /// Of each size, what is put.
    bodies: RefCell<BTreeMap<usize, Bytes>>,
}

impl OfStore {
    /// Below a prefix that is drawn.
    pub(in crate::nova) fn new(store: Arc<dyn Store>) -> Result<Self, getrandom::Error> {
        Ok(Self { store, prefix: format!("bench/{:016x}", getrandom::u64()?), bodies: RefCell::default() })
    }

    fn name(&self, number: u64) -> Result<ObjectName, StoreFault> {
        let name = ObjectName::parse(&format!("{}/{number:010}", self.prefix));
        name.map_err(|error| StoreFault { reason: Reason::Internal, why: error.to_string() })
    }

    /// Bytes that no store makes smaller.
    fn body(&self, bytes: usize) -> Result<Bytes, StoreFault> {
        if let Some(body) = self.bodies.borrow().get(&bytes) {
            return Ok(body.clone());
        }
        let mut body = vec![0; bytes];
        getrandom::fill(&mut body)
            .map_err(|error| StoreFault { reason: Reason::FailedPrecondition, why: error.to_string() })?;
        let body = Bytes::from(body);
        self.bodies.borrow_mut().insert(bytes, body.clone());
        Ok(body)
    }
}

fn fault(error: StoreError) -> StoreFault {
    StoreFault { reason: error.reason(), why: error.to_string() }
}

impl Objects for OfStore {
    async fn put(&self, number: u64, bytes: usize) -> Result<(), StoreFault> {
        let (name, body) = (self.name(number)?, self.body(bytes)?);
        self.store.put_if_absent(&name, body, PutNonce::fresh()).await.map(drop).map_err(fault)
    }

    async fn get(&self, number: u64) -> Result<usize, StoreFault> {
        let object = self.store.get(&self.name(number)?, Span::Whole).await.map_err(fault)?;
        Ok(object.body.len())
    }

    async fn remove(&self, number: u64) -> Result<(), StoreFault> {
        self.store.delete(&self.name(number)?).await.map_err(fault)
    }
}
