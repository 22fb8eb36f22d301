//! How do S2's messages become Rust? From their field numbers, at build time, without a compiler to install.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    const PROTO: &str = "proto/s2.proto";
    println!("cargo::rerun-if-changed={PROTO}");
    let messages = protox::compile([PROTO], ["proto"])?;
    prost_build::Config::new().bytes(["."]).compile_fds(messages)?;
    Ok(())
}
