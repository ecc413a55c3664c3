//! Builds the preload library and the hook libraries, which the command carries inside.
//!
//! A nested `cargo build` in its own profile and its own target directory: the library is
//! freestanding and must not be built with the flags, the profile or the wrappers of whatever
//! builds the command (debug builds, coverage, clippy).
//!
//! A package cannot depend on a shared library, so the package of the command has the sources. The
//! folder `hook` links to the sources and manifests of `crates/hook`, and `cargo package` follows
//! the links. In the repository as in a package, the libraries are built from this folder, in a
//! workspace below `OUT_DIR` that has the layout of the repository.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::{env, fs, io};

/// The names of the packages of the libraries, of their files, and of the variables that say where
/// they are.
const LIBRARIES: [(&str, &str, &str); 6] = [
    ("preload", "preload", "HEAPLEDGER_PRELOAD_LIBRARY"),
    ("memcheck-preload", "memcheck_preload", "HEAPLEDGER_MEMCHECK_LIBRARY"),
    ("log-preload", "log_preload", "HEAPLEDGER_LOG_LIBRARY"),
    ("phc-preload", "phc_preload", "HEAPLEDGER_PHC_LIBRARY"),
    ("heap-preload", "allocator", "HEAPLEDGER_ALLOCATOR_LIBRARY"),
    ("replay-player", "replay_player", "HEAPLEDGER_PLAYER_LIBRARY"),
];

/// The library that is placed into programs: its package, file and variable. It is built apart,
/// with another configuration of the crates that it has in common with the others.
const PLACED: (&str, &str, &str) = ("placed", "placed", "HEAPLEDGER_PLACED_LIBRARY");

/// A name of a package, of a file and of a variable.
type Library = (&'static str, &'static str, &'static str);

fn main() {
    let own = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let sources = own.join("hook");
    // Cargo follows the links.
    println!("cargo::rerun-if-changed={}", sources.display());
    let out = PathBuf::from(variable("OUT_DIR"));
    let workspace = out.join("hook");
    if let Err(error) = lay_out(&sources, &workspace) {
        fail(&format!("the sources in {} cannot be used", sources.display()), &error.to_string());
    }
    build(&workspace, &out.join("preload"), &own, &LIBRARIES, None);
    build(&workspace, &out.join("placed"), &own, &[PLACED], Some("--cfg placed"));
}

/// Writes the manifests of the workspace, with links to its sources.
fn lay_out(sources: &Path, workspace: &Path) -> io::Result<()> {
    if workspace.exists() {
        fs::remove_dir_all(workspace)?;
    }
    let crates = workspace.join("crates/hook");
    fs::create_dir_all(&crates)?;
    for entry in fs::read_dir(sources)? {
        let entry = entry?;
        let (source, package) = (entry.path(), crates.join(entry.file_name()));
        if source.is_dir() {
            fs::create_dir(&package)?;
            let manifest = fs::read_to_string(source.join("manifest.toml"))?;
            fs::write(package.join("Cargo.toml"), without_dev_dependencies(&manifest))?;
            symlink(source.join("src"), package.join("src"))?;
        }
    }

    // Profiles, lints and dependencies are those of the repository; only the members are fewer.
    let manifest = fs::read_to_string(sources.join("workspace.toml"))?;
    let Some(shared) = manifest.find("[workspace.package]") else {
        return Err(io::Error::other("workspace.toml has no [workspace.package]"));
    };
    let members = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/hook/*\"]\n\n";
    fs::write(workspace.join("Cargo.toml"), members.to_owned() + &manifest[shared..])?;
    let lock = sources.join("workspace.lock");
    if lock.exists() {
        // Not by `fs::copy`, which keeps permissions: cargo has to be able to write to it.
        fs::write(workspace.join("Cargo.lock"), fs::read(lock)?)?;
    }
    Ok(())
}

/// Removes the tables of dependencies that only tests have: cargo would look for them even so.
fn without_dev_dependencies(manifest: &str) -> String {
    let mut is_kept = true;
    let lines = manifest.split_inclusive('\n').filter(|line| {
        if line.starts_with('[') {
            is_kept = !line.contains("dev-dependencies");
        }
        is_kept
    });
    lines.collect()
}

/// Builds libraries, with these flags for the compiler, and sets the variables with their paths.
fn build(workspace: &Path, target_directory: &Path, own: &Path, libraries: &[Library], flags: Option<&str>) {
    // A command that is installed without `--locked` may have newer dependencies than the lock file
    // says, and cargo has downloaded only those. Without the lock file, it takes what it has.
    let lock = workspace.join("Cargo.lock");
    if lock.exists() && run(&mut cargo("fetch", workspace, own)).is_err() {
        let _ = fs::remove_file(lock);
    }

    let mut build = cargo("build", workspace, own);
    build.args(["--profile", "preload"]);
    for (name, ..) in libraries {
        build.arg("--package").arg(format!("heapledger-{name}"));
    }
    build.arg("--target-dir").arg(target_directory);
    // A directory for intermediate files that is shared between builds would be locked by the outer
    // one.
    build.env("CARGO_BUILD_BUILD_DIR", target_directory);
    if let Some(flags) = flags {
        build.env("RUSTFLAGS", flags);
    }
    let mut output = target_directory.to_owned();
    let (target, host) = (target_of_programs(), variable("HOST"));
    if target != host {
        build.args(["--target", &target]);
        output.push(target);
    }
    if let Err((what, details)) = run(&mut build) {
        fail(&what, &details);
    }
    for (_, name, variable) in libraries {
        let library = output.join("preload").join(format!("libheapledger_{name}.so"));
        if !library.is_file() {
            fail(&format!("cargo made no {}", library.display()), "");
        }
        println!("cargo::rustc-env={variable}={}", library.display());
    }
}

/// Returns the target of the libraries: they are loaded into programs for glibc, also by a command
/// that is itself built for musl.
fn target_of_programs() -> String {
    variable("TARGET").replace("-linux-musl", "-linux-gnu")
}

/// Returns a command of cargo for the workspace. It reads the configuration that holds for the
/// package (a mirror, vendored sources), and the outer build has downloaded all that it needs.
fn cargo(command: &str, workspace: &Path, own: &Path) -> Command {
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args([command, "--quiet", "--offline", "--manifest-path"]).arg(workspace.join("Cargo.toml"));
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_of_the_outer_build) {
            cargo.env_remove(name);
        }
    }
    cargo.current_dir(own);
    cargo
}

/// Runs a command to its end. An error says what failed, and has what the command printed.
fn run(command: &mut Command) -> Result<(), (String, String)> {
    let done = command.output().map_err(|error| ("cargo cannot be started".to_owned(), error.to_string()))?;
    if done.status.success() {
        return Ok(());
    }
    Err((format!("cargo failed ({})", done.status), String::from_utf8_lossy(&done.stderr).into_owned()))
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
