use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use slatedb::object_store::path::Path;
use slatedb::object_store::{
    Attribute, Attributes, Error, GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, PutPayload, PutResult, UpdateVersion,
};

use super::Objects;
use crate::store::{Fault, LocalDirectory, MemoryStore, Store, StoreOp};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Both stores, each with an object beside the prefix that is never to be seen.
async fn check(test: impl AsyncFn(Objects)) {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let stores: [Arc<dyn Store>; 2] =
        [Arc::new(MemoryStore::new()), Arc::new(LocalDirectory::open(directory.path()).unwrap())];
    for store in stores {
        Objects::new(Arc::clone(&store), "other/").put(&"beside".into(), "x".into()).await.unwrap();
        test(Objects::new(store, "m/")).await;
    }
}

impl Objects {
    async fn put_as(&self, path: &str, body: &'static str, mode: PutMode) -> Result<PutResult, Error> {
        self.put_opts(&path.into(), body.into(), PutOptions::from(mode)).await
    }

    async fn text(&self, path: &str, range: Option<GetRange>) -> Result<Bytes, Error> {
        let result = self.get_opts(&path.into(), GetOptions { range, ..GetOptions::default() }).await?;
        result.bytes().await
    }
}

#[test]
fn a_create_a_stale_update_and_an_overwrite_end_as_they_should() {
    block_on(check(async |objects| {
        let first = objects.put_as("a/b", "one", PutMode::Create).await.unwrap();
        assert!(matches!(objects.put_as("a/b", "two", PutMode::Create).await, Err(Error::AlreadyExists { .. })));
        let (first, next) = (UpdateVersion::from(first), PutMode::Update);
        objects.put_as("a/b", "two", next(first.clone())).await.unwrap();
        assert!(matches!(objects.put_as("a/b", "three", next(first.clone())).await, Err(Error::Precondition { .. })));
        assert!(matches!(objects.put_as("gone", "x", next(first)).await, Err(Error::Precondition { .. })));
        assert_eq!(objects.text("a/b", None).await.unwrap(), "two");
        objects.put_as("a/b", "three", PutMode::Overwrite).await.unwrap();
        objects.put_as("a/new", "four", PutMode::Overwrite).await.unwrap();
        assert_eq!(objects.text("a/b", None).await.unwrap(), "three");
        assert_eq!(objects.text("a/new", None).await.unwrap(), "four");
        objects.copy(&"a/b".into(), &"a/new".into()).await.unwrap();
        assert_eq!(objects.text("a/new", None).await.unwrap(), "three");
        let copied = objects.copy_if_not_exists(&"a/b".into(), &"a/new".into()).await;
        assert!(matches!(copied, Err(Error::AlreadyExists { .. })));
    }));
}

#[test]
fn ranges_conditions_and_heads_are_honoured() {
    block_on(check(async |objects| {
        let put = objects.put_as("a", "0123456789", PutMode::Create).await.unwrap();
        let cases = [
            (GetRange::Bounded(2..4), "23"),
            (GetRange::Bounded(8..99), "89"),
            (GetRange::Offset(7), "789"),
            (GetRange::Suffix(3), "789"),
            (GetRange::Suffix(30), "0123456789"),
        ];
        for (range, expected) in cases {
            assert_eq!(objects.text("a", Some(range)).await.unwrap(), expected);
        }
        assert!(objects.text("a", Some(GetRange::Bounded(10..12))).await.is_err());
        let head = objects.head(&"a".into()).await.unwrap();
        assert_eq!((head.size, head.e_tag.clone()), (10, put.e_tag));
        let options = |if_match, if_none_match| GetOptions { if_match, if_none_match, ..GetOptions::default() };
        let same = objects.get_opts(&"a".into(), options(None, head.e_tag)).await;
        assert!(matches!(same, Err(Error::NotModified { .. })));
        let other = objects.get_opts(&"a".into(), options(Some("none".to_owned()), None)).await;
        assert!(matches!(other, Err(Error::Precondition { .. })));
        assert!(matches!(objects.head(&"b".into()).await, Err(Error::NotFound { .. })));
        assert!(matches!(objects.text("b", None).await, Err(Error::NotFound { .. })));
    }));
}

#[test]
fn listings_see_what_is_below_the_prefix_and_deletes_take_it_away() {
    block_on(check(async |objects| {
        for path in ["00/manifest/1", "00/manifest/2", "00/x", "001/y", "z"] {
            objects.put(&path.into(), "x".into()).await.unwrap();
        }
        let names = |prefix: Option<&'static str>| {
            let found = objects.list(prefix.map(Path::from).as_ref());
            async move { found.map_ok(|meta| meta.location.to_string()).try_collect::<Vec<_>>().await.unwrap() }
        };
        assert_eq!(names(None).await, ["00/manifest/1", "00/manifest/2", "00/x", "001/y", "z"]);
        assert_eq!(names(Some("00")).await, ["00/manifest/1", "00/manifest/2", "00/x"]);
        assert_eq!(names(Some("00/man")).await.len(), 0, "a prefix is made of whole parts");
        let level = objects.list_with_delimiter(Some(&"00".into())).await.unwrap();
        assert_eq!(level.common_prefixes, [Path::from("00/manifest")]);
        assert_eq!(level.objects[0].location, Path::from("00/x"));
        let top = objects.list_with_delimiter(None).await.unwrap();
        assert_eq!(top.common_prefixes, [Path::from("00"), Path::from("001")]);
        objects.delete(&"00/x".into()).await.unwrap();
        assert_eq!(names(Some("00")).await, ["00/manifest/1", "00/manifest/2"]);
    }));
}

#[test]
fn an_upload_in_parts_is_seen_whole_or_not_at_all() {
    block_on(check(async |objects| {
        let mut upload = objects.put_multipart(&"big".into()).await.unwrap();
        for part in ["one ", "two ", "three"] {
            upload.put_part(PutPayload::from(part)).await.unwrap();
        }
        assert!(matches!(objects.head(&"big".into()).await, Err(Error::NotFound { .. })));
        upload.complete().await.unwrap();
        assert_eq!(objects.text("big", None).await.unwrap(), "one two three");
        let mut upload = objects.put_multipart(&"never".into()).await.unwrap();
        upload.put_part("x".into()).await.unwrap();
        upload.abort().await.unwrap();
        assert!(matches!(objects.head(&"never".into()).await, Err(Error::NotFound { .. })));
    }));
}

#[test]
fn a_put_that_is_tried_again_after_its_answer_was_lost_is_taken_for_done() {
    block_on(async {
        let store = MemoryStore::new();
        let objects = Objects::new(Arc::new(store.clone()), "m/");
        let put = |id: &'static str| {
            let attributes = Attributes::from_iter([(Attribute::Metadata("slatedbputid".into()), id)]);
            PutOptions { mode: PutMode::Create, attributes, ..PutOptions::default() }
        };
        store.inject(StoreOp::PutIfAbsent, Fault::AfterApply);
        let lost = objects.put_opts(&"a".into(), "x".into(), put("01")).await;
        assert!(matches!(lost, Err(Error::Generic { .. })), "{lost:?}");
        objects.put_opts(&"a".into(), "x".into(), put("01")).await.unwrap();
        let other = objects.put_opts(&"a".into(), "x".into(), put("02")).await;
        assert!(matches!(other, Err(Error::AlreadyExists { .. })), "{other:?}");
    });
}

#[test]
fn an_object_is_as_old_as_this_process_knows_it() {
    block_on(async {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let before = std::time::SystemTime::now();
        let objects = Objects::new(Arc::clone(&store), "m/");
        objects.put(&"a".into(), "x".into()).await.unwrap();
        let written = objects.head(&"a".into()).await.unwrap().last_modified;
        assert!(std::time::SystemTime::from(written) >= before);
        assert_eq!(objects.list(None).try_next().await.unwrap().unwrap().last_modified, written);
        let other = Objects::new(store, "m/");
        let met = other.head(&"a".into()).await.unwrap().last_modified;
        assert_eq!(std::time::SystemTime::from(met), std::time::SystemTime::UNIX_EPOCH, "an earlier process's");
    });
}
