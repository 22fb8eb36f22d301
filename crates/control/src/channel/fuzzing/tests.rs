//! Objects to begin with.

use wire::ids::{ClusterId, Epoch, LogId, Lsn, StarId};

use super::*;
use crate::channel::cluster::{ChannelRecord, HeadLog, Owner};
use crate::channel::lease::{LeaseState, Tenure};

/// Objects by what they are.
pub(crate) fn samples() -> [(&'static str, Vec<u8>); 4] {
    let (star, incarnation) = (StarId::from_bytes(*b"a star of sorts."), Epoch::new(7));
    let channel = |end| ChannelRecord { star, incarnation, low: 3, end };
    let (log, end_lsn) = (LogId::from_bytes([9; 16]), Lsn::new(1_000));
    let cluster = Cluster {
        owner: Some(Owner { star, incarnation, released: true }),
        channels: vec![channel(Some(17)), channel(None)],
        logs: vec![HeadLog { log, star, number: 513, epoch: incarnation, end_lsn, clean: true }],
        ..Cluster::new(ClusterId::from_bytes(*b"0123456789abcdef"))
    };
    let fenced = Lease { state: LeaseState::Fenced(Tenure { star, incarnation }), ..Lease::held(Epoch::new(3)) };
    [
        ("cluster", [&[0], &cluster.encode()[..]].concat()),
        ("cluster-new", [&[0], &Cluster::new(cluster.id).encode()[..]].concat()),
        ("lease", [&[1], &Lease::held(incarnation).encode()[..]].concat()),
        ("lease-fenced", [&[1], &fenced.encode()[..]].concat()),
    ]
}
