//! Files that a browser writes about itself.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::harness::{Scratch, heapledger, installed, wait_until};

/// A browser that ends with the test.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Chromium with memory-infra. If its heap profiler is not in the trace, a message says so, and the
/// sizes of allocators are reports.
#[test]
#[ignore = "starts Chromium; `.ci/run` runs it"]
fn of_chromium() {
    let scratch = Scratch::new();
    let Some(chromium) = installed("chromium") else { return };
    let file = scratch.file("trace.json");
    let browser = Command::new(chromium)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--memlog=all", "--memlog-stack-mode=native"])
        .args(["--trace-startup=disabled-by-default-memory-infra", "--trace-startup-duration=10"])
        .args(["--trace-startup-format=json", &format!("--trace-startup-file={}", file.display())])
        .arg(format!("--user-data-dir={}", scratch.file("home").display()))
        .arg("data:text/html,<h1>a page</h1>")
        .stderr(Stdio::null())
        .spawn();
    let _browser = Browser(browser.unwrap());
    wait_until("there is a trace", || file.metadata().is_ok_and(|file| file.len() > 0));
    wait_until("it is whole", || fs::read(&file).unwrap().trim_ascii_end().ends_with(b"}"));
    let top = heapledger(["top".as_ref(), file.as_os_str()]);
    let said = String::from_utf8_lossy(&top.stderr).into_owned();
    let has_heaps = fs::read(&file).unwrap().windows(7).any(|part| part == b"\"heaps_");
    if has_heaps {
        assert!(top.status.success(), "{said}");
    } else {
        assert_eq!(top.status.code(), Some(102), "{said}");
        assert!(said.contains("memory dumps have no heaps") && said.contains("heapledger reports show"), "{said}");
    }
    let reports = heapledger(["reports".as_ref(), "show".as_ref(), file.as_os_str()]);
    let text = String::from_utf8_lossy(&reports.stdout).into_owned();
    assert!(reports.status.success() && text.contains("Browser (pid") && text.contains(" malloc"), "{reports:?}");
}
