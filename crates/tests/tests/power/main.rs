//! Does a star on a real file system keep what it acked when the power goes, or when its disk fails?
//!
//! Its data lies on ext4 or XFS on a loop device whose file is ours ([`device`]): all that comes to it is recorded
//! ([`recording`]), and so is each ack at the moment in which its client had it ([`load`]). From a recording any number of
//! disks is made as a loss of power may leave them ([`cut`]); each is mounted, a star is started on it, and what it serves
//! is held against what was known at that moment ([`known`], [`trial`]).
//!
//! It takes root, `/dev/fuse`, loop devices, `mkfs.ext4` and `mkfs.xfs`, and fails where they are missing:
//! `cargo test --workspace --test power -- --ignored`. `NOVA_POWER_IMAGES` is how many disks a recording gives instead of what each
//! test says, `NOVA_POWER_SEED` chooses where and how the power goes, and a failed test leaves its disks in `NOVA_POWER_KEEP`.

mod alone;
mod cut;
mod device;
mod disk;
mod errors;
mod known;
mod load;
mod loss;
mod recording;
mod rig;
mod stream;
mod trial;
