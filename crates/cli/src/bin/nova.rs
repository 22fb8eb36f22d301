//! `nova`: the command for users of a star.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::nova::main()
}
