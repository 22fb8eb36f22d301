//! How do the parts of one star come together, and how do they part?

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use control::store::{Store, StoreError};
use control::{Control, ControlSender, Inbox, Joints, LoadError, ShardSink};
use dataplane::RecoveredStar;
use tuning::settings::Settings;
use tuning::start::{DataDirectory, Prepared};
use wire::handoff::{Full, ToShard};
use wire::ids::{ClusterId, StarId};
use wire::reason::Reason;

use super::Failure;

/// Checks the host, and takes the data directory.
pub(super) fn prepare(settings: &Settings) -> Result<Prepared, Failure> {
    let held = |data: &DataDirectory| dataplane::held_bytes(data.path());
    tuning::start::prepare(settings, held).map_err(|error| Failure::new(error.reason(), error))
}

/// A star that serves.
#[derive(Debug)]
pub(super) struct Star {
    shards: dataplane::Star,
    control: Control,
    /// Locked while this lives.
    _data: DataDirectory,
}

impl Star {
    /// Recovers the head logs, opens the store, and starts control and shards over queues between them.
    pub(super) fn start(settings: &Settings, prepared: Prepared) -> Result<Self, Failure> {
        let recovered = recover(&prepared)?;
        let store = super::store::open(settings, prepared.data.path())?;
        let lanes: Vec<Lane> = prepared.plan.shard_cpus().iter().map(|_| Lane::default()).collect();
        let (to_control, inbox) = control::inbox();
        let control = start_control(inbox, store, &lanes, &prepared)?;
        match start_shards(settings, &prepared, recovered, (control.cluster(), to_control)) {
            Ok(shards) => {
                for (lane, sink) in lanes.iter().zip(shards.shard_senders()) {
                    lane.open(sink);
                }
                Ok(Self { shards, control, _data: prepared.data })
            }
            Err(failure) => {
                control.stop();
                Err(failure)
            }
        }
    }

    /// Where it listens.
    pub(super) fn address(&self) -> std::net::SocketAddr {
        self.shards.addr()
    }

    /// Finishes what is in flight, seals the logs and stops; control answers the shards until they have.
    pub(super) fn drain(self) -> Result<(), Failure> {
        self.shards.drain();
        let ended = self.shards.join();
        self.control.stop();
        ended.map_err(|error| Failure::new(Reason::Internal, error))
    }
}

/// The way from control to one shard. Control starts first, for shards tell clients its cluster; until a shard is there its
/// lane is as if full, and control keeps what it has to say.
#[derive(Clone, Default)]
struct Lane(Arc<Mutex<Option<ShardSink>>>);

impl Lane {
    fn open(&self, sink: ShardSink) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sink);
    }

    fn send(&self, message: ToShard) -> Result<(), Full> {
        let sink = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sink.as_ref().map_or(Err(Full), |send| send(message))
    }
}

fn recover(prepared: &Prepared) -> Result<RecoveredStar, Failure> {
    let shards = prepared.plan.shard_cpus().len();
    let shards = u16::try_from(shards).map_err(|_| Failure::new(Reason::Invalid, "too many shards"))?;
    let (began, mut told) = (Instant::now(), Instant::now());
    let on_progress = |progress: dataplane::Progress| {
        if told.elapsed().as_secs() >= 1 {
            told = Instant::now();
            let dataplane::Progress { entries, bytes, streams } = progress;
            tracing::info!(entries, bytes, streams, "recovering");
        }
    };
    let recovered = dataplane::recover(prepared.data.path(), shards, on_progress)
        .map_err(|error| Failure::new(error.reason(), error))?;
    let dataplane::Progress { entries, bytes, streams } = recovered.progress();
    for (log, verdict) in recovered.verdicts() {
        tracing::debug!(log = %log.display(), ?verdict, "head log");
    }
    tracing::info!(
        entries,
        bytes,
        streams,
        epoch = recovered.epoch().get(),
        took_ms = began.elapsed().as_millis(),
        "recovered"
    );
    Ok(recovered)
}

fn start_control(inbox: Inbox, store: Arc<dyn Store>, lanes: &[Lane], prepared: &Prepared) -> Result<Control, Failure> {
    let sinks = lanes.iter().cloned().map(|lane| Box::new(move |message| lane.send(message)) as ShardSink);
    let joints = Joints { inbox, store, shards: sinks.collect(), cpus: prepared.plan.control_cpus().to_vec() };
    Control::start(joints).map_err(|error| {
        let reason = match &error {
            control::StartError::Load(LoadError::Store(source)) => StoreError::reason(source),
            _ => Reason::FailedPrecondition,
        };
        Failure::new(reason, error)
    })
}

fn start_shards(
    settings: &Settings,
    prepared: &Prepared,
    recovered: RecoveredStar,
    (cluster_id, to_control): (ClusterId, ControlSender),
) -> Result<dataplane::Star, Failure> {
    let options = dataplane::Options {
        listen: settings.listen,
        shard_cpus: prepared.plan.shard_cpus().to_vec(),
        settings: settings.clone(),
        log_bytes_max: prepared.log_bytes_max.get(),
        version: env!("CARGO_PKG_VERSION"),
        cluster_id,
        star_id: mint()?,
    };
    dataplane::start(&options, recovered, move |message| to_control.send(message))
        .map_err(|error| Failure::new(error.reason(), error))
}

fn mint() -> Result<StarId, Failure> {
    let mut random = [0; 10];
    getrandom::fill(&mut random).map_err(|error| Failure::new(Reason::Internal, error))?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(StarId::mint(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), random))
}

#[cfg(test)]
mod tests {
    use super::Lane;
    use std::sync::mpsc::channel;
    use wire::handoff::{Full, ToShard};

    #[test]
    fn a_lane_is_full_until_its_shard_is_there() {
        let lane = Lane::default();
        assert_eq!(lane.send(ToShard::Drain), Err(Full));
        let (sender, receiver) = channel();
        lane.open(Box::new(move |message| sender.send(message).map_err(|_| Full)));
        assert_eq!(lane.send(ToShard::Drain), Ok(()));
        assert!(matches!(receiver.try_recv(), Ok(ToShard::Drain)));
    }
}
