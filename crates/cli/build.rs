//! Links every call that makes an io_uring through the function of express-log that adds `IORING_SETUP_COOP_TASKRUN`.

fn main() {
    println!("cargo:rustc-link-arg-bins=-Wl,--wrap=__sys_io_uring_setup");
    println!("cargo:rerun-if-changed=build.rs");
}
