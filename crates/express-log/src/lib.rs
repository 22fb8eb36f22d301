//! Makes batches durable on NVMe in order and finds its tail again after a crash.
