//! How is a star set on disks that record, and what stays of them when the power goes?

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::Client;
use tests::{Novad, Scratch, Script, run_tool};

use crate::device::{Disks, Fault};
use crate::disk::{FileSystem, Mounted};
use crate::known::Known;
use crate::load::{Load, impatient};
use crate::recording::{Content, Event, Recording};

/// The background is in a hurry, so that segments and objects go while the power does.
const ARGS: [&str; 6] = ["--shards", "2", "--settle-age-ms", "20", "--settle-grace-ms", "100"];

/// Files that fill a disk.
const FILES_MAX: usize = 20;

/// What a star stands on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground {
    pub(crate) kind: FileSystem,
    /// Bytes of each disk.
    pub(crate) bytes: u64,
    /// 1, or 2 with the store on a disk of its own.
    pub(crate) disks: usize,
}

impl Ground {
    /// One disk for all.
    pub(crate) fn one(kind: FileSystem) -> Self {
        Self { kind, bytes: kind.bytes(), disks: 1 }
    }

    /// The store on another disk.
    pub(crate) fn two(kind: FileSystem) -> Self {
        Self { disks: 2, ..Self::one(kind) }
    }

    /// Where a disk is mounted.
    pub(crate) fn mount(scratch: &Scratch, disk: usize) -> PathBuf {
        scratch.join(&format!("mount-{disk}"))
    }

    /// The data directory of its star.
    pub(crate) fn data(scratch: &Scratch) -> PathBuf {
        Self::mount(scratch, 0).join("data")
    }

    /// The arguments of its star.
    pub(crate) fn args(&self, scratch: &Scratch) -> Vec<String> {
        let store = if self.disks == 1 {
            "in-data".to_owned()
        } else {
            Self::mount(scratch, 1).join("store").display().to_string()
        };
        ARGS.into_iter().map(str::to_owned).chain(["--store".to_owned(), store]).collect()
    }
}

/// A star on disks that record. It goes before what it stands on.
pub(crate) struct Rig {
    pub(crate) novad: Novad,
    recording: Recording,
    stand: Stand,
    ground: Ground,
}

/// What a star stands on; it goes in this order.
struct Stand {
    mounted: Vec<Mounted>,
    disks: Disks,
    scratch: Arc<Scratch>,
}

impl Stand {
    fn new(ground: Ground, recording: &Recording, left: &[Vec<(u64, Content)>], is_new: bool) -> Result<Self, String> {
        let scratch = Arc::new(Scratch::new());
        let disks = Disks::serve(&scratch, recording, ground.bytes, left)?;
        let mut stand = Self { mounted: Vec::new(), disks, scratch };
        for disk in 0..ground.disks {
            let on = Ground::mount(&stand.scratch, disk);
            std::fs::create_dir(&on).map_err(|error| format!("{}: {error}", on.display()))?;
            let made = is_new.then_some(ground.kind);
            stand.mounted.push(Mounted::recorded(&stand.disks.file(disk), &on, made)?);
        }
        Ok(stand)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        // Whatever ends a test, its disks work again, so that they can be unmounted.
        self.disks.fail(Fault::None);
    }
}

/// What was recorded.
pub(crate) struct Recorded {
    pub(crate) ground: Ground,
    pub(crate) events: Vec<Event>,
    /// A disk is full in the end.
    pub(crate) is_full: bool,
    /// All it stood on is unmounted; the place is still there.
    pub(crate) scratch: Arc<Scratch>,
}

impl Rig {
    /// Starts one on new disks.
    ///
    /// # Errors
    /// Why it can't be here.
    pub(crate) fn new(ground: Ground) -> Result<Self, String> {
        let recording = Recording::default();
        let stand = Stand::new(ground, &recording, &vec![Vec::new(); ground.disks], true)?;
        recording.phase("the first start");
        Ok(Self::start(ground, recording, stand))
    }

    /// Starts one on disks as a loss of power left them, and of which this was known.
    ///
    /// # Errors
    /// Why it can't be.
    pub(crate) fn on(ground: Ground, left: &[Vec<(u64, Content)>], known: Known) -> Result<Self, String> {
        let recording = Recording::default();
        // What was left is not taken away by what happens now.
        for (disk, left) in left.iter().enumerate() {
            for (offset, content) in left {
                let at = recording.add(Event::Written { disk, offset: *offset, content: content.clone() });
                recording.add(Event::Answered(at));
            }
            let came = recording.len();
            recording.add(Event::Flushed { disk, came });
        }
        recording.add(Event::Knew(Box::new(known)));
        recording.phase("a start after a loss");
        let stand = Stand::new(ground, &recording, left, false)?;
        Ok(Self::start(ground, recording, stand))
    }

    fn start(ground: Ground, recording: Recording, stand: Stand) -> Self {
        let script = Script::new(&stand.scratch);
        let args = ground.args(&stand.scratch);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let novad = Novad::start_failing(&Ground::data(&stand.scratch), &args, &script);
        Self { novad, recording, stand, ground }
    }

    pub(crate) fn recording(&self) -> &Recording {
        &self.recording
    }

    /// A client that gives up soon.
    pub(crate) fn client(&self) -> Client {
        impatient(&self.novad)
    }

    /// Writers of a star that is new.
    pub(crate) async fn load(&self, seed: u64) -> Load {
        Load::new(&self.novad.client(), &self.recording, seed).await
    }

    /// From here on the disks do something wrong.
    pub(crate) fn fail(&self, fault: Fault) {
        self.stand.disks.fail(fault);
    }

    /// Takes all room of a disk but so many bytes.
    ///
    /// # Panics
    /// When it can't be.
    pub(crate) fn fill(&self, disk: usize, but: u64) {
        let on = Ground::mount(&self.stand.scratch, disk);
        for number in 0..FILES_MAX {
            let bytes = free_bytes(&on).saturating_sub(but);
            let ballast = on.join(format!("ballast-{number}"));
            // The star takes room meanwhile; what was got of it stays.
            let got = run_tool("fallocate", &["--length", &bytes.max(1).to_string(), &ballast.display().to_string()]);
            if got.is_ok() {
                return;
            }
        }
        panic!("{} is never full: {} bytes are free", on.display(), free_bytes(&on));
    }

    /// Takes the power away now. What the star and the file systems write after that counts for nothing.
    pub(crate) fn cut_power(self) -> Recorded {
        let Self { novad, recording, stand, ground, .. } = self;
        let events = recording.events();
        let scratch = Arc::clone(&stand.scratch);
        drop(novad);
        drop(stand);
        Recorded { ground, events, is_full: false, scratch }
    }
}

/// Room that is free, asked by another process: one that serves a disk and waits for it can't be ended.
fn free_bytes(on: &Path) -> u64 {
    let told = run_tool("stat", &["--file-system", "--format", "%a %S", &on.display().to_string()]);
    let told = told.unwrap_or_else(|why| panic!("{why}"));
    let numbers: Vec<u64> = told.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [blocks, bytes] = numbers[..] else { panic!("the room of {}: {told}", on.display()) };
    blocks * bytes
}
