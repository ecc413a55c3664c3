//! Programs that link Heapledger, in workspaces of their own: built with other allocators, or
//! linked in other ways.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::harness::{HEAPLEDGER, skipped};

/// The way in which a program is built.
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) feature: &'static str,
    pub(crate) target: &'static str,
    pub(crate) flags: &'static str,
    pub(crate) is_release: bool,
}

/// With the system's allocator.
pub(crate) const SYSTEM: Variant = Variant { name: "system", feature: "", target: "", flags: "", is_release: false };
/// With Heapledger's allocator.
pub(crate) const HEAP: Variant = Variant { name: "heap", feature: "heap", ..SYSTEM };
pub(crate) const MIMALLOC: Variant = Variant { name: "mimalloc", feature: "mimalloc", ..SYSTEM };
pub(crate) const JEMALLOC: Variant = Variant { name: "jemalloc", feature: "jemalloc", ..SYSTEM };
/// Nothing can be preloaded into this one.
pub(crate) const STATIC: Variant =
    Variant { name: "static", target: "x86_64-unknown-linux-gnu", flags: "-Ctarget-feature=+crt-static", ..SYSTEM };
const MUSL: Variant = Variant { name: "musl", target: "x86_64-unknown-linux-musl", ..SYSTEM };

/// Builds the program of `fixtures/FIXTURE` in this variant.
pub(crate) fn build(fixture: &str, variant: &Variant) -> PathBuf {
    try_build(fixture, variant).unwrap_or_else(|error| panic!("{error}"))
}

/// Builds the program of `fixtures/FIXTURE` for musl. `None`, with a message, if that target is not
/// installed.
pub(crate) fn build_for_musl(fixture: &str) -> Option<PathBuf> {
    match try_build(fixture, &MUSL) {
        Ok(program) => Some(program),
        Err(error) if error.contains("target may not be installed") => {
            skipped("the Rust target x86_64-unknown-linux-musl is not installed");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Builds the library `libFIXTURE.so` of `fixtures/FIXTURE` in this variant.
pub(crate) fn build_library(fixture: &str, variant: &Variant) -> PathBuf {
    try_build_file(fixture, &format!("lib{fixture}.so"), variant).unwrap_or_else(|error| panic!("{error}"))
}

fn try_build(fixture: &str, variant: &Variant) -> Result<PathBuf, String> {
    try_build_file(fixture, fixture, variant)
}

fn try_build_file(fixture: &str, file: &str, variant: &Variant) -> Result<PathBuf, String> {
    // Common parts are built once, in one place, where each variant replaces the program of the one
    // before.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = Path::new(HEAPLEDGER).ancestors().nth(2).unwrap().join("apart");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures").join(fixture).join("Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--manifest-path"]).arg(&manifest).arg("--target-dir").arg(&directory);
    cargo.env_remove("CARGO_TARGET_DIR").env("RUSTFLAGS", variant.flags);
    for (option, value) in [("--features", variant.feature), ("--target", variant.target)] {
        if !value.is_empty() {
            cargo.args([option, value]);
        }
    }
    if variant.is_release {
        cargo.arg("--release");
    }
    let output = cargo.output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let profile = if variant.is_release { "release" } else { "debug" };
    let kept = directory.join("variants").join(variant.name);
    fs::create_dir_all(&kept).unwrap();
    let built = kept.join(file);
    fs::copy(directory.join(variant.target).join(profile).join(file), &built).unwrap();
    Ok(built)
}
