//! Is damage of the store told with the key, served to nobody, and taken as no reason to delete anything?

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::{ReadOptions, Reason};
use tests::history::{Tag, read_all};
use tests::{Novad, Scratch, at, eventually, is_on_a_directory, objects, within};

/// A star that is down, over two streams of which each has a chunk of its own.
struct Two {
    novad: Novad,
    store: PathBuf,
    _scratch: Scratch,
}

impl Two {
    fn stopped(is_clean: bool) -> Self {
        let scratch = Scratch::new();
        let store = scratch.join("store");
        let args = ["--store", store.to_str().expect("a path"), "--settle-age-ms", "50"];
        let mut novad = Novad::start(&scratch.join("data"), &args);
        within(60, async {
            let client = novad.client_with_bucket().await;
            for (key, writer) in [("damaged", 1), ("whole", 2)] {
                let bodies = (0..20).map(|index| Tag { writer, index }.body(2_000));
                client.append(&at(key), bodies).await.expect("an ack");
                let is_settled = async || client.get_stream(&at(key)).await.expect("it").settled.get() == 20;
                eventually(Duration::from_secs(20), "it is settled", is_settled).await;
            }
        });
        if is_clean {
            assert_eq!(novad.sigterm(), Some(0), "{}", novad.log());
        } else {
            novad.kill9();
        }
        Self { novad, store, _scratch: scratch }
    }

    /// The object that holds the records of the stream that is to be damaged, and where in it.
    fn object(&self) -> (PathBuf, usize) {
        let needle = Tag { writer: 1, index: 7 }.body(2_000).into_bytes();
        let holds = |path: &PathBuf| {
            let bytes = fs::read(self.store.join(path)).expect("an object");
            bytes.windows(needle.len()).position(|window| window == needle)
        };
        let chunks = objects(&self.store).into_iter().filter(|path| path.starts_with("c"));
        chunks.into_iter().find_map(|path| holds(&path).map(|at| (path, at))).expect("an object with the records")
    }

    /// What the object is called, as far as messages tell it.
    fn key(object: &Path) -> String {
        object.with_extension("").display().to_string()
    }

    async fn whole_is_served(&self) {
        let records = read_all(&self.novad.client(), &at("whole")).await;
        assert_eq!(records.len(), 20);
        assert!(records.iter().zip(0..).all(|(record, index)| Tag::of(record) == Tag { writer: 2, index }));
    }
}

/// What is done to a file.
type Damage = fn(&Path, usize);

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("an object");
    bytes[at] ^= 0x20;
    fs::write(path, bytes).expect("it is changed");
}

fn truncate(path: &Path, _at: usize) {
    let file = fs::File::options().write(true).open(path).expect("an object");
    file.set_len(file.metadata().expect("its length").len() / 2).expect("it is cut");
}

fn remove(path: &Path, _at: usize) {
    fs::remove_file(path).expect("it is removed");
}

const DAMAGES: [(&str, Damage); 3] = [("a flipped bit", flip), ("a cut", truncate), ("a removal", remove)];

#[test]
fn reads_of_a_damaged_object_name_it_and_others_are_served() {
    if !is_on_a_directory() {
        return;
    }
    for (what, damage) in DAMAGES {
        let mut two = Two::stopped(true);
        let (object, place) = two.object();
        let path = two.store.join(&object);
        let intact = fs::read(&path).expect("an object");
        damage(&path, place);
        let mut before = objects(&two.store);
        two.novad.restart();
        within(60, async {
            let client = two.novad.client();
            let told = client.read(&at("damaged"), ReadOptions::from(0)).await.expect_err("damage is not served");
            assert!(matches!(told.reason(), Reason::Internal | Reason::Unavailable), "{what}: {told}");
            assert!(told.message().contains(&Two::key(&object)), "{what}: {told}");
            two.whole_is_served().await;
            // The stream is no other for it.
            let ack = client.append(&at("damaged"), ["more"]).await.expect("an ack");
            assert_eq!(ack.start.seq_num.get(), 20, "{what}");
            let live = client.read(&at("damaged"), ReadOptions::from(20)).await.expect("a page");
            assert_eq!(live.records.len(), 1, "{what}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        });
        let after = objects(&two.store);
        before.retain(|path| path.starts_with("c"));
        assert!(before.iter().all(|path| after.contains(path)), "{what}: nothing is deleted");
        fs::write(&path, intact).expect("it is put back");
        within(60, async {
            let is_back = async || two.novad.client().read(&at("damaged"), ReadOptions::from(0)).await.is_ok();
            eventually(Duration::from_secs(20), "it is served once it is put back", is_back).await;
            assert_eq!(read_all(&two.novad.client(), &at("damaged")).await.len(), 21, "{what}");
        });
    }
}

/// What is not yet in the index durably is read from the chunks at a start, which can't do without one of them. One that is
/// not there at all can't be told from one that was never committed.
#[test]
fn a_start_that_needs_a_damaged_chunk_is_refused_with_its_key() {
    if !is_on_a_directory() {
        return;
    }
    for (what, damage) in &DAMAGES[..2] {
        let mut two = Two::stopped(false);
        let (object, place) = two.object();
        let path = two.store.join(&object);
        let intact = fs::read(&path).expect("an object");
        damage(&path, place);
        let before = objects(&two.store);
        let ended = two.novad.try_restart().expect_err("damage is not passed over");
        assert!(matches!(ended.code, Some(1 | 4 | 7)), "{what}: {}", ended.log);
        assert!(ended.line.starts_with("novad: ") && ended.line.contains(&Two::key(&object)), "{what}: {}", ended.line);
        let after = objects(&two.store);
        assert!(before.iter().all(|path| after.contains(path)), "{what}: nothing is deleted");
        fs::write(&path, intact).expect("it is put back");
        two.novad.restart();
        within(30, async {
            assert_eq!(read_all(&two.novad.client(), &at("damaged")).await.len(), 20, "{what}");
            two.whole_is_served().await;
        });
    }
}
