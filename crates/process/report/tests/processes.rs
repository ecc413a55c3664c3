//! Several processes: children that answer, and that do not.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use heapledger_report::{Collector, Options, Report, Reports, collect, listen, register, save};

/// What the test runs itself as: see `child`.
const ROLE: &str = "HEAPLEDGER_TEST_ROLE";

/// In a child this is the program; by itself nothing.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let _reporter = register("of-a-child", move |collector: &mut Collector| {
        collector.count("", 7, "What the child says.");
        if role == "slow" {
            std::thread::sleep(Duration::from_secs(60));
        }
    });
    let _listener = listen().unwrap();
    println!("listens");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

struct Running(Child);

impl Running {
    fn start(role: &str) -> Running {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).env(ROLE, role);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("listens")));
        Running(child)
    }

    fn of<'r>(&self, reports: &'r Reports) -> Vec<&'r Report> {
        let end = format!("(pid {})", self.0.id());
        reports.reports.iter().filter(|report| report.process.ends_with(&end)).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn children_are_asked() {
    let (first, second, slow) = (Running::start("quick"), Running::start("quick"), Running::start("slow"));
    let _own = register("own", |collector: &mut Collector| collector.count("", 1, "What we say."));
    let begun = Instant::now();
    let options = Options { children: true, reporter_deadline: Duration::from_millis(500), ..Options::default() };
    let reports = collect(&options);
    assert!(begun.elapsed() < Duration::from_secs(20));
    for child in [&first, &second, &slow] {
        let own = child.of(&reports);
        assert!(own.iter().any(|report| &*report.path == "of-a-child" && report.amount == 7), "{own:?}");
        assert!(own.iter().any(|report| &*report.path == "resident"));
        assert!(own.iter().all(|report| report.process.starts_with("processes-")));
        // It has said itself which of its reporters was late.
        let is_late = own.iter().any(|report| &*report.path == r"heapledger-failed/of-a-child");
        assert_eq!(is_late, std::ptr::eq(child, &slow), "{own:?}");
    }
    let own: Vec<_> = reports.reports.iter().filter(|report| &*report.path == "own").collect();
    assert_eq!(own.len(), 1);
    assert!(own[0].process.starts_with("Main Process (processes-"));

    // One that does not even answer is named; the others are not hindered.
    // SAFETY: a child of ours, which has not been waited for.
    unsafe { libc::kill(first.0.id() as i32, libc::SIGSTOP) };
    let reports = collect(&Options { deadline: Duration::from_millis(1_500), ..options });
    let failed = format!("heapledger-failed/pid {}", first.0.id());
    let failed = reports.reports.iter().find(|report| *report.path == *failed).unwrap();
    assert!(failed.description.contains("it did not answer in time"), "{failed:?}");
    assert!(first.of(&reports).is_empty() && !second.of(&reports).is_empty(), "{reports:?}");
    let alone = collect(&Options::default());
    assert!(alone.reports.iter().all(|report| report.process.starts_with("Main Process (processes-")));
}

#[test]
fn nonsense_is_not_answered() {
    let listener = listen().unwrap();
    let name = {
        let sockets = heapledger_reports::request::sockets(&std::fs::read("/proc/net/unix").unwrap());
        sockets.into_iter().find(|&(pid, _)| pid == std::process::id()).unwrap().1
    };
    let connect = || {
        use std::os::linux::net::SocketAddrExt;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        std::os::unix::net::UnixStream::connect_addr(&address)
    };
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\n", &[b'x'; 4096]] {
        let mut client = connect().unwrap();
        // It may have been closed before all of it was written.
        let _ = client.write_all(nonsense);
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        assert!(answer.is_empty());
    }
    let mut client = connect().unwrap();
    client.write_all(b"heapledger-reports each=1000 all=1000\n").unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert!(Reports::parse(&answer).unwrap().reports.len() > 5);
    drop(listener);
    assert!(connect().is_err());
}

#[test]
fn files_are_whole_and_private() {
    let directory = tempfile();
    let path = directory.join("a.json.gz");
    save(&path, &Options::default()).unwrap();
    let reports = Reports::parse(&std::fs::read(&path).unwrap()).unwrap();
    assert!(reports.reports.iter().any(|report| &*report.path == "resident"));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
    assert!(save(directory.join("missing/a.json.gz"), &Options::default()).is_err());
    assert!(save("/", &Options::default()).is_err());
    std::fs::remove_dir_all(directory).unwrap();
}

fn tempfile() -> std::path::PathBuf {
    let directory = std::env::temp_dir().join(format!("heapledger-report-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}
