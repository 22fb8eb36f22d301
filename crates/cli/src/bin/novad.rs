//! `novad`: one star.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::novad::main()
}
