//! What do S2's messages look like on the wire? Generated from `proto/s2.proto`.

#![expect(unreachable_pub, reason = "generated; the meaning of each field stands in the .proto file")]

include!(concat!(env!("OUT_DIR"), "/s2.v1.rs"));
