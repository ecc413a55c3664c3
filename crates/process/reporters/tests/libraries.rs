//! Libraries that come and go while the program runs, each with its own copy of Heapledger.

use std::ffi::{CStr, CString, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use heapledger_reporters::{Collector, ReportOptions, Reports, collect, register};

/// `examples/plugin.rs`. `cargo test` has built it with the tests, unless it was told to build this
/// one alone.
fn plugin() -> PathBuf {
    let directory = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf();
    let library = directory.join("examples/libplugin.so");
    if !library.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "heapledger-reporters", "--example", "plugin", "--target-dir"]);
        cargo.arg(directory.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
        if directory.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success());
    }
    library
}

struct Library {
    handle: *mut c_void,
    path: PathBuf,
}

impl Library {
    fn load(path: &Path) -> Library {
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the library's constructors do nothing but register a reporter.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{} cannot be loaded", path.display());
        Library { handle, path: path.to_path_buf() }
    }

    fn find(&self, name: &CStr) -> *mut c_void {
        // SAFETY: `dlsym` requires a handle that is open, and a name that ends with NUL. `load` has
        // opened it, and only `close`, which takes the value, closes it.
        let function = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!function.is_null());
        function
    }

    fn begin(&self) {
        // SAFETY: `transmute` requires the address of a function of this type. `examples/plugin.rs`
        // defines `plugin_begin` so, and the library is loaded while `self` is there.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn()>(self.find(c"plugin_begin"))() }
    }

    fn set(&self, what: c_int) {
        // SAFETY: `transmute` requires the address of a function of this type. `examples/plugin.rs`
        // defines `plugin_set` so, and the library is loaded while `self` is there.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(c_int)>(self.find(c"plugin_set"))(what) }
    }

    /// In a thread that ends: while one lives that has thread-locals of a library, that is not
    /// unloaded.
    fn collect_apart(&self) -> c_int {
        // SAFETY: `transmute` requires the address of a function of this type. `examples/plugin.rs`
        // defines `plugin_collect` so, and the library is loaded while `self` is there.
        let collect: extern "C" fn() -> c_int = unsafe { std::mem::transmute(self.find(c"plugin_collect")) };
        std::thread::spawn(move || collect()).join().unwrap()
    }

    /// Closes the library. True if it is still mapped afterwards.
    fn close(self) -> bool {
        // SAFETY: `dlclose` requires a handle that is open. `load` has opened it, and this takes
        // the value. The functions that were found through it are not called after this, and a
        // collection that calls the library's reporters keeps it loaded meanwhile.
        unsafe { libc::dlclose(self.handle) };
        let path = self.path.to_str().unwrap();
        // Printing the stack of a panic maps the file, too.
        let is_code = |line: &str| line.contains(path) && line.contains(" r-xp ");
        fs::read_to_string("/proc/self/maps").unwrap().lines().any(is_code)
    }
}

fn amount(reports: &Reports, path: &str) -> Option<i64> {
    reports.reports.iter().find(|report| &*report.path == path).map(|report| report.amount)
}

fn reason(reports: &Reports, name: &str) -> String {
    let path = format!("heapledger-failed/{name}");
    reports.reports.iter().find(|report| *report.path == *path).map_or(String::new(), |it| it.description.to_string())
}

/// A library in C, which has nothing of ours but the header.
fn reporters_in_c_come_and_go(plugin: &Path, collect_all: &impl Fn() -> Reports) {
    let in_c = plugin.with_file_name("libreporters_c.so");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-DLIBRARY", "-o"]).arg(&in_c).arg("-I").arg(root.join("include"));
    assert!(compiler.arg(root.join("fixtures/headers/reporters.c")).status().unwrap().success());
    let library = Library::load(&in_c);
    assert_eq!(amount(&collect_all(), "library-count"), Some(5));
    assert!(!library.close());
    assert_eq!(amount(&collect_all(), "library-count"), None);
}

/// In one test: a library's mappings are those of the process.
#[test]
fn reporters_come_and_go_with_their_library() {
    let path = plugin();
    // On a busy machine it takes seconds to print the stack of a panic.
    let (reporter_deadline, deadline) = (Duration::from_secs(300), Duration::from_secs(600));
    let all = || collect(&ReportOptions { reporter_deadline, deadline, ..ReportOptions::default() });
    let _own = register("of-the-program", |collector: &mut Collector| collector.count("", 1, "One."));
    assert_eq!(amount(&all(), "explicit/plugin/tables"), None);
    for round in 0..3 {
        let library = Library::load(&path);
        // Registered by a constructor of the library.
        let reports = all();
        assert_eq!(amount(&reports, "explicit/plugin/tables"), Some(4096));
        assert_eq!(amount(&reports, "of-the-program"), Some(1));
        assert_eq!(amount(&reports, "plugin-session/open"), None);
        library.begin();
        let reports = all();
        assert_eq!(amount(&reports, "explicit/plugin/tables"), Some(4096));
        assert_eq!(amount(&reports, "plugin-session/open"), Some(1));
        // A panic of another standard library.
        assert!(reason(&reports, "plugin-session").contains("it panicked: there is nothing"), "round {round}");
        // The other way round.
        assert_eq!(library.collect_apart(), 1);
        // Not unregistered: it goes with the library.
        assert!(!library.close(), "round {round}: nothing keeps the library");
        assert_eq!(amount(&all(), "explicit/plugin/tables"), None);
        assert_eq!(amount(&all(), "plugin-session/open"), None);
        // Nothing of it is called any more where the process forks.
        // SAFETY: the child ends at once, and is waited for.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(7);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
        }
    }

    reporters_in_c_come_and_go(&path, &all);

    // Whenever it comes and goes.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..50 {
                Library::load(&path).close();
            }
        });
        for _ in 0..50 {
            assert_eq!(amount(&all(), "of-the-program"), Some(1));
        }
    });

    // While a reporter has not returned its code has to stay.
    let library = Library::load(&path);
    library.begin();
    library.set(2);
    let brief = ReportOptions { reporter_deadline: Duration::from_millis(30), ..ReportOptions::default() };
    let reports = collect(&brief);
    assert!(reason(&reports, "plugin-session").contains("it had not answered after"));
    assert_eq!(amount(&reports, "of-the-program"), Some(1));
    library.set(0);
    let (set, handle) = (library.find(c"plugin_set"), library.handle);
    assert!(library.close(), "it is not unloaded any more");
    // SAFETY: `find` requires a handle that is open. `close` has given back one count of the
    // library. `keep_loaded` has another and does not give it back, and the handle of both is the
    // same.
    let library = Library { handle, path: PathBuf::new() };
    assert_eq!(library.find(c"plugin_set"), set);
    library.set(1);
    assert_eq!(amount(&all(), "plugin-session/open"), None);
    assert_eq!(amount(&all(), "explicit/plugin/tables"), Some(4096));
}
