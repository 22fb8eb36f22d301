//! Which lines are there that a test may choose?

macro_rules! points {
    ($($(#[doc = $doc:literal])+ $point:ident $name:literal $phase:ident)+) => {
        /// A line of nova that a test may choose. Where it stands is found by its name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Point {
            $($(#[doc = $doc])+ $point,)+
        }

        impl Point {
            /// Every one of them.
            pub const ALL: [Self; [$(Self::$point),+].len()] = [$(Self::$point),+];

            /// As a script names it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$point => $name,)+
                }
            }

            /// When it is reached.
            #[must_use]
            pub const fn phase(self) -> Phase {
                match self {
                    $(Self::$point => Phase::$phase,)+
                }
            }
        }
    };
}

points! {
    // The head log, in its shell.
    /// Before the frame of a commit is written.
    HeadWrite "head-write" Serving
    /// A frame is durable, and nobody was told.
    HeadWritten "head-written" Serving
    /// A file that is to become a segment has its header and no zeroes yet.
    SegmentZero "segment-zero" Serving
    /// It is full of zeroes, and has not its name yet.
    SegmentZeroed "segment-zeroed" Serving
    /// It has its name, which is not durable yet.
    SegmentNamed "segment-named" Serving
    /// Frames go to the next segment, and the one before is still open.
    SegmentRoll "segment-roll" Serving
    /// Before the superblock is written that does not list settled segments.
    FreeSuperblock "free-superblock" Serving
    /// It is durable, and the segments are still there.
    FreeSuperblockWritten "free-superblock-written" Serving
    /// Before the file of a freed segment is removed.
    SegmentUnlink "segment-unlink" Serving
    /// It is removed, and that is not durable yet.
    SegmentUnlinked "segment-unlinked" Serving
    /// Before the superblock of a new epoch is written.
    OpenSuperblock "open-superblock" Starting
    /// It is durable, and no segment of its epoch is there.
    OpenSuperblockWritten "open-superblock-written" Starting
    /// Before the superblock of a log that ends in order is written.
    SealSuperblock "seal-superblock" Stopping

    // Chunks, and what is told of them.
    /// Before a chunk is put.
    ChunkPut "chunk-put" Serving
    /// The store has answered that it stands.
    ChunkPutDone "chunk-put-done" Serving
    /// It and all before it stand, and no shard was told.
    ChunkTell "chunk-tell" Serving
    /// Before a committed chunk is applied to the index.
    ChunkApply "chunk-apply" Serving
    /// It is applied in memory, and no shard was told.
    ChunkApplied "chunk-applied" Serving

    // The index.
    /// Before an object of a slot's database is put.
    IndexWrite "index-write" Serving
    /// It stands.
    IndexWritten "index-written" Serving
    /// All slots have sent their rows, and nothing says so.
    CheckpointRecord "checkpoint-record" Serving
    /// The record of the checkpoint is replaced.
    CheckpointRecorded "checkpoint-recorded" Serving

    // What becomes of chunks.
    /// Before a bundle is put.
    BundlePut "bundle-put" Serving
    /// It stands, and the index does not know it.
    BundlePutDone "bundle-put-done" Serving
    /// The index points to it, and that is not durable.
    BundleMoved "bundle-moved" Serving
    /// Before it is published up to where chunks are needed by no one.
    LowPublish "low-publish" Serving
    /// It is published, and none was deleted.
    LowPublished "low-published" Serving
    /// Before an earlier channel is forgotten.
    PriorForget "prior-forget" Serving
    /// It is forgotten, and its chunks are still there.
    PriorForgotten "prior-forgotten" Serving
    /// Before a chunk is deleted.
    ChunkDelete "chunk-delete" Serving
    /// It is deleted.
    ChunkDeleted "chunk-deleted" Serving
    /// Before an object is deleted that nothing points to.
    ObjectDelete "object-delete" Serving
    /// It is deleted, and the index still has its row.
    ObjectDeleted "object-deleted" Serving
    /// Its row is gone from memory, and not durably.
    ObjectForgotten "object-forgotten" Serving
    /// Before an object is deleted that nothing knows.
    OrphanDelete "orphan-delete" Serving
    /// Before a stream is asked to trim what is too much.
    RetentionTrim "retention-trim" Serving
    /// Before it is noted what the clocks say.
    ClockNote "clock-note" Serving

    // The channel and its lease.
    /// Before the lease is replaced.
    LeaseRenew "lease-renew" Serving
    /// It is replaced.
    LeaseRenewed "lease-renewed" Serving
    /// Before the cluster is changed to a new incarnation.
    IncarnationTake "incarnation-take" Starting
    /// It is, and the channels of before are open.
    IncarnationTaken "incarnation-taken" Starting
    /// The end of an earlier channel is found, and not fenced.
    FencePut "fence-put" Starting
    /// It is fenced, and the cluster does not say so.
    FencePutDone "fence-put-done" Starting
    /// The cluster says which channels have ended.
    SealNoted "seal-noted" Starting
    /// The new channel has its first object, and the lease is not held.
    ChannelBegun "channel-begun" Starting
    /// Before the head logs that are in use are noted.
    LogsNote "logs-note" Starting
    /// They are, and no record was taken.
    LogsNoted "logs-noted" Starting
    /// All is settled, and the store is not released.
    Release "release" Stopping
    /// The lease is released, and the cluster does not say so.
    Released "released" Stopping

    // Buckets, and moves between the classes.
    /// Before a bucket is put or replaced.
    BucketPut "bucket-put" Serving
    /// It is.
    BucketPutDone "bucket-put-done" Serving
    /// A shard makes no more streams in a bucket that is to be deleted.
    BucketFrozen "bucket-frozen" Serving
    /// Before a bucket is removed.
    BucketRemove "bucket-remove" Serving
    /// It is.
    BucketRemoved "bucket-removed" Serving
    /// A stream that moves takes nothing new, and what was under way is.
    MoveRest "move-rest" Serving
    /// It is at rest, and waits until all of it is settled.
    MoveFlush "move-flush" Serving
    /// Before its move is handed over to be committed.
    MoveCommit "move-commit" Serving
    /// Its move is durable, and it goes on.
    MoveReopen "move-reopen" Serving

    // Every request to the store.
    /// The store is asked to read or to list.
    StoreRead "store-read" Anywhere
    /// The store is asked to write or to delete.
    StoreWrite "store-write" Anywhere
}

/// When a point is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Between the command and the first request.
    Starting,
    /// While requests are served.
    Serving,
    /// After the star was told to stop.
    Stopping,
    /// All the time.
    Anywhere,
}

impl Point {
    /// Whether it is passed by every request to the store.
    #[must_use]
    pub const fn is_of_the_store(self) -> bool {
        matches!(self, Self::StoreRead | Self::StoreWrite)
    }
}
