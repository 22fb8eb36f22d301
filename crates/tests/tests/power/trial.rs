//! Does a star come up on what a loss of power left, with all that was known, and go on?

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use client::{Client, OneShot, Reason};
use tests::{Novad, within};

use crate::cut::{Cut, lay};
use crate::disk::Mounted;
use crate::known::{Fact, Known, Life, What};
use crate::recording::{Content, Event, Recording};
use crate::rig::{Ground, Recorded};
use crate::stream::{Batch, FENCED, Place, REBORN, SESSIONS, token};

const SEED: &str = "NOVA_POWER_SEED";
const IMAGES: &str = "NOVA_POWER_IMAGES";
const KEEP: &str = "NOVA_POWER_KEEP";
/// One image is mounted, served and read within this.
const IMAGE_SECONDS_MAX: u64 = 240;

/// What chooses the losses of a test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    test: &'static str,
    pub(crate) seed: u64,
    pub(crate) images: usize,
}

impl Choice {
    /// Of a test that tries so many images when nothing else is said.
    pub(crate) fn of(test: &'static str, images: usize) -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
            Some(text.parse::<u64>().unwrap_or_else(|error| panic!("{name} is `{text}`, which is no number: {error}")))
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let drawn = u64::try_from(now % u128::from(u32::MAX)).unwrap_or_default();
        let seed = number(SEED).unwrap_or(drawn);
        let images = number(IMAGES).map_or(images, |images| usize::try_from(images).unwrap_or(usize::MAX));
        let choice = Self { test, seed, images };
        eprintln!("{test}: {}", choice.again());
        choice
    }

    fn again(&self) -> String {
        let Self { test, seed, images } = self;
        format!("{SEED}={seed} {IMAGES}={images} cargo test --workspace --test power -- --ignored {test}")
    }

    /// The seed of an image.
    pub(crate) fn of_image(&self, number: usize) -> u64 {
        self.seed ^ (number as u64 + 1) << 32
    }
}

impl Recorded {
    /// Tries the losses that a choice makes, each on a disk of its own.
    ///
    /// # Panics
    /// When a star does not come back with what was known.
    pub(crate) fn try_all(&self, choice: Choice) {
        let cuts = (0..choice.images)
            .map(|number| Cut::choose(&self.events, self.ground.disks, number, choice.of_image(number)));
        self.try_each(choice, cuts);
    }

    /// Tries some losses.
    ///
    /// # Panics
    /// As [`Recorded::try_all`].
    pub(crate) fn try_each(&self, choice: Choice, cuts: impl IntoIterator<Item = Cut>) {
        let (mut tried, mut open, mut acked) = (0, 0, 0);
        for cut in cuts {
            open += (0..self.ground.disks).map(|disk| cut.open(&self.events, disk)).sum::<usize>();
            acked +=
                self.hold(&cut).unwrap_or_else(|why| panic!("{}\nagain: {}", self.told(&cut, &why), choice.again()));
            tried += 1;
        }
        let (test, events, mib) = (choice.test, self.events.len(), self.written() >> 20);
        eprintln!(
            "{test}: {tried} images of {events} events with {mib} MiB hold: {acked} acked batches, {open} open writes"
        );
        assert!(acked > 0 && open > 0, "nothing was at stake");
    }

    /// Bytes that were written but zeroes.
    fn written(&self) -> u64 {
        let bytes = |event: &Event| match event {
            Event::Written { content: content @ Content::Bytes(..), .. } => content.bytes(),
            _ => 0,
        };
        self.events.iter().map(bytes).sum()
    }

    /// What is wrong, and where.
    pub(crate) fn told(&self, cut: &Cut, why: &str) -> String {
        let (phase, at, of) = (cut.phase(&self.events), cut.at, self.events.len());
        let kept =
            if std::env::var_os(KEEP).is_some() { "" } else { "; the disks are kept where NOVA_POWER_KEEP says" };
        format!("power lost during {phase}, at event {at} of {of}, losing {:?}{kept}: {why}", cut.losses)
    }

    /// Makes the disks that a loss leaves, starts a star on them, and holds it against what was known: as it comes up, and after
    /// it has gone on and was killed. Answers how many batches it had to have.
    ///
    /// # Errors
    /// What is not as it must be.
    pub(crate) fn hold(&self, cut: &Cut) -> Result<usize, String> {
        let images: Vec<PathBuf> =
            (0..self.ground.disks).map(|disk| self.scratch.join(&format!("image-{disk}"))).collect();
        for (disk, image) in images.iter().enumerate() {
            let laid = lay(&cut.left(&self.events, disk), image, self.ground.bytes);
            laid.map_err(|error| format!("{}: {error}", image.display()))?;
        }
        let held = within(IMAGE_SECONDS_MAX, self.serve(&images, &self.events[..cut.at]));
        if held.is_err() {
            self.keep(cut);
        }
        held
    }

    async fn serve(&self, images: &[PathBuf], events: &[Event]) -> Result<usize, String> {
        let mut known = Known::of(events);
        let acked = known.acked();
        let mut mounted = Vec::new();
        for (disk, image) in images.iter().enumerate() {
            mounted.push(Mounted::image(image, &Ground::mount(&self.scratch, disk))?);
        }
        let args = self.ground.args(&self.scratch);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let started = Novad::try_start(&Ground::data(&self.scratch), &args);
        let mut novad = started.map_err(|ended| format!("novad does not start: {}", ended.log))?;
        let held = self.hold_twice(&mut novad, &mut known).await;
        held.map_err(|why| format!("{why}\n{}", novad.log())).map(|()| acked)
    }

    async fn hold_twice(&self, novad: &mut Novad, known: &mut Known) -> Result<(), String> {
        let (client, recording) = (novad.client(), Recording::default());
        known.check(&client).await?;
        let mut sequel =
            Sequel { client: client.clone(), known: &mut *known, recording: &recording, is_full: self.is_full };
        sequel.go_on().await?;
        known.check(&client).await?;
        novad.kill9();
        novad.try_restart().map_err(|ended| format!("novad does not start again: {}", ended.log))?;
        let after = known.check(&novad.client()).await;
        after.map_err(|why| format!("after it went on and was killed: {why}"))
    }

    /// Keeps the disks that a loss leaves for whoever wants to look at them, if that was asked for.
    fn keep(&self, cut: &Cut) {
        let Some(place) = std::env::var_os(KEEP) else { return };
        for disk in 0..self.ground.disks {
            let path = PathBuf::from(&place).join(format!("nova-power-{}-{}-{disk}.image", cut.seed, cut.at));
            match lay(&cut.left(&self.events, disk), &path, self.ground.bytes) {
                Ok(()) => eprintln!("kept {}", path.display()),
                Err(error) => eprintln!("{}: {error}", path.display()),
            }
        }
    }
}

/// Whoever goes on with what is known, and writes down what comes of it.
pub(crate) struct Sequel<'a> {
    pub(crate) client: Client,
    pub(crate) known: &'a mut Known,
    pub(crate) recording: &'a Recording,
    /// Appends may be refused for want of room.
    pub(crate) is_full: bool,
}

impl Sequel<'_> {
    /// Sends again what was sent last, and writes more, to every stream that is there.
    ///
    /// # Errors
    /// What is not as it must be.
    pub(crate) async fn go_on(&mut self) -> Result<(), String> {
        for place in FENCED {
            self.send_again(place).await?;
            self.try_shut_out(place).await?;
        }
        for place in SESSIONS.into_iter().chain(FENCED).chain(REBORN) {
            if let Some(life) = self.life(place) {
                let batch = Batch { first: life.next(), records: 3 };
                self.append(place, &life, batch).await?;
            }
        }
        Ok(())
    }

    fn life(&self, place: Place) -> Option<Life> {
        self.known.life(place).filter(|life| life.is_there()).cloned()
    }

    fn take(&mut self, place: Place, what: What) {
        self.recording.note(Fact::Of(place, what));
        self.known.take(Fact::Of(place, what));
    }

    async fn append(&mut self, place: Place, life: &Life, batch: Batch) -> Result<(), String> {
        self.take(place, What::Sending(batch));
        let key = Some(batch.key(place, life.number()));
        let with = OneShot { fencing_token: token(life.generation()), idempotency_key: key, ..OneShot::default() };
        let ack = self.client.append_with(&place.address(), with, batch.bodies(place, life.number())).await;
        let at = match ack {
            Ok(ack) => ack.start.seq_num.get(),
            Err(error) if self.is_full && error.reason() == Reason::ResourceExhausted => return Ok(()),
            Err(error) => return Err(format!("{}: batch {} is not taken: {error}", place.key, batch.first)),
        };
        let before = life.place_of(batch.first);
        if before.is_some_and(|before| before != at) {
            return Err(format!("{}: batch {} was at {before:?} and is stored again at {at}", place.key, batch.first));
        }
        self.take(place, What::Acked { first: batch.first, seq_num: at });
        Ok(())
    }

    /// A batch under its key is stored once, and gets its first answer.
    async fn send_again(&mut self, place: Place) -> Result<(), String> {
        let Some(life) = self.life(place) else { return Ok(()) };
        let Some(last) = life.last() else { return Ok(()) };
        self.append(place, &life, last).await
    }

    /// A writer that was shut out still is.
    async fn try_shut_out(&mut self, place: Place) -> Result<(), String> {
        let before = self.life(place).and_then(|life| life.generation().checked_sub(1)).filter(|before| *before > 0);
        let Some(before) = before else { return Ok(()) };
        let with = OneShot { fencing_token: token(before), ..OneShot::default() };
        let told = self.client.append_with(&place.address(), with, ["shut out"]).await;
        if told.as_ref().is_err_and(|error| error.reason() == Reason::FencedOut) {
            return Ok(());
        }
        Err(format!("{}: generation {before} is not shut out: {told:?}", place.key))
    }
}
