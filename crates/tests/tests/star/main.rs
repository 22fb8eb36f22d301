//! Does the real `novad` keep what it promises, asked by the Rust client and by the command line?

mod files;
mod kill9;
mod races;
mod restart;
