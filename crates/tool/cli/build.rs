//! Builds the preload library and that of the checks, which the command carries inside.
//!
//! A nested `cargo build` in its own profile and its own target directory: the library is
//! freestanding and must not be built with the flags, the profile or the wrappers of whatever
//! builds the command (debug builds, coverage, clippy).

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

fn main() {
    let own = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let Some(root) = own.ancestors().nth(3).filter(|root| root.join("crates/hook/preload/Cargo.toml").is_file()) else {
        fail("its sources (crates/hook) are not there: heapledger-cli is built inside its repository", "");
    };
    for path in ["crates/hook", "Cargo.toml", "Cargo.lock"].map(|path| root.join(path)) {
        // A file that is not there would count as changed every time.
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let directory = build(root);
    for (name, variable) in
        [("preload", "HEAPLEDGER_PRELOAD_LIBRARY"), ("memcheck_preload", "HEAPLEDGER_MEMCHECK_LIBRARY")]
    {
        let library = directory.join(format!("libheapledger_{name}.so"));
        if !library.is_file() {
            fail(&format!("cargo made no {}", library.display()), "");
        }
        println!("cargo::rustc-env={variable}={}", library.display());
    }
}

/// Returns the directory that they are in.
fn build(root: &Path) -> PathBuf {
    let manifest = root.join("Cargo.toml");
    let directory = PathBuf::from(variable("OUT_DIR")).join("preload");
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args(["build", "--quiet", "--profile", "preload"]);
    cargo.args(["--package", "heapledger-preload", "--package", "heapledger-memcheck-preload"]);
    cargo.arg("--manifest-path").arg(&manifest).arg("--target-dir").arg(&directory);
    if root.join("Cargo.lock").is_file() {
        cargo.arg("--locked");
    }
    let mut output = directory.clone();
    let (target, host) = (variable("TARGET"), variable("HOST"));
    if target != host {
        cargo.args(["--target", &target]);
        output.push(target);
    }
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_of_the_outer_build) {
            cargo.env_remove(name);
        }
    }
    // A directory for intermediate files that is shared between builds would be locked by the outer
    // one.
    cargo.env("CARGO_BUILD_BUILD_DIR", &directory);
    cargo.current_dir(root);

    let done = match cargo.output() {
        Ok(done) => done,
        Err(error) => fail("cargo cannot be started", &error.to_string()),
    };
    if !done.status.success() {
        fail(&format!("cargo failed ({})", done.status), &String::from_utf8_lossy(&done.stderr));
    }
    output.join("preload")
}

/// Variables that would change how the library is built.
fn is_of_the_outer_build(name: &str) -> bool {
    let exact = [
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_ENCODED_RUSTDOCFLAGS",
        "CARGO_INCREMENTAL",
        "CARGO_TARGET_DIR",
        "CARGO_UNSTABLE_BUILD_STD",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "RUSTDOCFLAGS",
        "RUSTFLAGS",
    ];
    exact.contains(&name)
        || name.starts_with("CARGO_BUILD_")
        || name.starts_with("CARGO_PROFILE_")
        || (name.starts_with("CARGO_TARGET_") && name.ends_with("_RUSTFLAGS"))
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| fail(&format!("cargo sets no usable {name}"), &error.to_string()))
}

fn fail(what: &str, details: &str) -> ! {
    println!("cargo::error=the libraries for programs cannot be built: {what}");
    eprintln!("{details}");
    exit(1)
}
