//! What must hold of a cluster and of a lease, whatever bytes stand there?

use wire::fuzzing::{mend_sum, with_mended_sums};

use super::cluster::Cluster;
use super::lease::Lease;
use crate::fuzzing::mend_state_sum;

pub(crate) fn check_cluster(bytes: &[u8]) {
    let check = |bytes: &[u8]| {
        let Ok(cluster) = Cluster::decode(bytes) else { return };
        assert_eq!(Cluster::decode(&cluster.encode()), Ok(cluster));
    };
    with_mended_sums(bytes, |mended| mend_sum(mended, 12..bytes.len(), 8), check);
}

pub(crate) fn check_lease(bytes: &[u8]) {
    let check = |bytes: &[u8]| {
        let Ok(lease) = Lease::decode(bytes) else { return };
        assert_eq!(Lease::decode(&lease.encode()), Ok(lease));
    };
    with_mended_sums(bytes, mend_state_sum, check);
}

#[cfg(test)]
pub(crate) mod tests;
