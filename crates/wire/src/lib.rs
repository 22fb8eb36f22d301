//! Every byte that leaves a core, and the plain values that shards and control exchange.
