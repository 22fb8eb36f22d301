use super::{ChannelRecord, Cluster, ClusterDecodeError, HeadLog, Owner};
use wire::ids::{ClusterId, Epoch, LogId, Lsn, StarId};

fn full() -> Cluster {
    let star = StarId::from_bytes(*b"a star of sorts.");
    let channel = |incarnation: u64, end| ChannelRecord { star, incarnation: Epoch::new(incarnation), low: 3, end };
    Cluster {
        id: ClusterId::from_bytes(*b"0123456789abcdef"),
        next_epoch: Epoch::new(8),
        slots_with_index: 0x8000_0000_0000_0001,
        loss_epoch: Epoch::new(4),
        owner: Some(Owner { star, incarnation: Epoch::new(7), released: true }),
        channels: vec![channel(6, Some(17)), channel(7, None)],
        logs: vec![HeadLog {
            log: LogId::from_bytes([9; 16]),
            star,
            number: 513,
            epoch: Epoch::new(7),
            end_lsn: Lsn::new(1_000),
            clean: true,
        }],
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_layout_of_a_cluster_is_fixed() {
    let bytes = full().encode();
    let expected = concat!(
        "4e56636c03000000SUM.....",
        "30313233343536373839616263646566",
        "080000000000000001000000000000800400000000000000",
        "02000000612073746172206f6620736f7274732e0700000000000000",
        "0200000001000000",
        "612073746172206f6620736f7274732e060000000000000003000000000000001100000000000000",
        "612073746172206f6620736f7274732e07000000000000000300000000000000ffffffffffffffff",
        "09090909090909090909090909090909612073746172206f6620736f7274732e",
        "0700000000000000e8030000000000000102010000000000",
    );
    assert_eq!(hex(&bytes), expected.replace("SUM.....", &hex(&bytes[8..12])));
    assert_eq!(Cluster::decode(&bytes).unwrap(), full());
}

#[test]
fn no_cut_or_changed_cluster_is_read_as_another() {
    let good = full().encode();
    for len in 0..good.len() {
        assert!(Cluster::decode(&good[..len]).is_err(), "{len} bytes");
    }
    assert!(Cluster::decode(&[&good[..], b"x"].concat()).is_err());
    // Bytes 6 and 7 are zero and mean nothing yet.
    for bit in (0..good.len() * 8).filter(|bit| !(48..64).contains(bit)) {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(Cluster::decode(&bad).is_err(), "bit {bit}");
    }
}

#[test]
fn another_format_is_named() {
    let mut bytes = full().encode();
    for found in [2, 4] {
        bytes[4] = found;
        assert_eq!(Cluster::decode(&bytes), Err(ClusterDecodeError::Format { found: found.into() }));
    }
}

#[test]
fn an_incarnation_is_given_out_once() {
    let mut cluster = full();
    assert_eq!(cluster.take_epoch(Epoch::new(2)), Epoch::new(8));
    assert_eq!(cluster.take_epoch(Epoch::new(20)), Epoch::new(20));
    assert_eq!(cluster.take_epoch(Epoch::new(20)), Epoch::new(21));
}
