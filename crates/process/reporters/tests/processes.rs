//! Several processes: children that answer, and that do not.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use heapledger_report_format::ask::ListedSocket;
use heapledger_report_format::request::SOCKET_PREFIX;
use heapledger_reporters::{Collector, Report, ReportOptions, Reports, collect, listen, register, save};

/// The variable that selects the role in which the test runs itself: see `child`.
const ROLE: &str = "HEAPLEDGER_TEST_ROLE";

/// In a child this is the program; by itself nothing.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    if let Some(names) = role.strip_prefix("impostor ") {
        return answer_falsely(names);
    }
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

/// Listens at names of other processes, and says something false to everybody.
fn answer_falsely(names: &str) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let report = Report { path: "false".into(), ..of_one() };
    let file = Reports { reports: vec![report], has_usable_size: true }.to_gzip();
    for name in names.split(' ') {
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        let file = file.clone();
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let _ = BufReader::new(&client).read_line(&mut String::new());
                let _ = client.write_all(&file);
            }
        });
    }
    println!("listens");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Some report.
fn of_one() -> Report {
    let _one = register("one", |collector: &mut Collector| collector.count("", 1, "One."));
    collect(&ReportOptions::default()).reports.into_iter().find(|report| &*report.path == "one").unwrap()
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

/// A collection asks all children of the process, those of another test too: one at a time has
/// such.
static CHILDREN: Mutex<()> = Mutex::new(());

#[test]
fn children_are_asked() {
    let _alone = CHILDREN.lock();
    let (first, second, slow) = (Running::start("quick"), Running::start("quick"), Running::start("slow"));
    let _own = register("own", |collector: &mut Collector| collector.count("", 1, "What we say."));
    let begun = Instant::now();
    let options =
        ReportOptions { children: true, reporter_deadline: Duration::from_millis(500), ..ReportOptions::default() };
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
    let reports = collect(&ReportOptions { deadline: Duration::from_millis(1_500), ..options });
    let failed = format!("heapledger-failed/pid {}", first.0.id());
    let failed = reports.reports.iter().find(|report| *report.path == *failed).unwrap();
    assert!(failed.description.contains("it did not answer in time"), "{failed:?}");
    assert!(first.of(&reports).is_empty() && !second.of(&reports).is_empty(), "{reports:?}");
    let alone = collect(&ReportOptions::default());
    assert!(alone.reports.iter().all(|report| report.process.starts_with("Main Process (processes-")));
}

#[test]
fn nobody_answers_for_a_child() {
    let _alone = CHILDREN.lock();
    let (listening, silent) = (Running::start("quick"), Running(Command::new("sleep").arg("600").spawn().unwrap()));
    // They are listed in the order of a hash: some come before the true one.
    let names: Vec<String> = [&listening, &silent]
        .iter()
        .flat_map(|child| (0..6).map(|number| format!("{SOCKET_PREFIX}{}.{number}", child.0.id())))
        .collect();
    let _impostor = Running::start(&format!("impostor {}", names.join(" ")));
    let options =
        ReportOptions { children: true, reporter_deadline: Duration::from_millis(500), ..ReportOptions::default() };
    let reports = collect(&options);
    let said = |path: &str| reports.reports.iter().filter(|report| report.path.contains(path)).count();
    let own = listening.of(&reports);
    assert_eq!(own.iter().filter(|report| &*report.path == "of-a-child").count(), 1, "{own:?}");
    assert_eq!(said("false"), 0);
    let failures = format!("heapledger-failed/pid {}", silent.0.id());
    assert_eq!((said(&failures), silent.of(&reports).len()), (0, 0));
}

#[test]
fn nonsense_is_not_answered() {
    let listener = listen().unwrap();
    let name = {
        let sockets = ListedSocket::all(SOCKET_PREFIX).unwrap();
        sockets.into_iter().find(|listed| listed.number == std::process::id()).unwrap().name
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
    // More than are waited for at once, who say nothing, and some who have asked and gone: they
    // hold up nobody.
    let silent: Vec<_> = (0..300).map(|_| connect().unwrap()).collect();
    for _ in 0..20 {
        connect().unwrap().write_all(b"heapledger-reports each=60000 all=60000\n").unwrap();
    }
    let mut client = connect().unwrap();
    client.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    client.write_all(b"heapledger-reports each=1000 all=1000\n").unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert!(Reports::parse(&answer).unwrap().reports.len() > 5);
    drop(silent);
    drop(listener);
    assert!(connect().is_err());
}

#[test]
fn files_are_whole_and_private() {
    let directory = tempfile();
    let path = directory.join("a.json.gz");
    save(&path, &ReportOptions::default()).unwrap();
    let reports = Reports::parse(&std::fs::read(&path).unwrap()).unwrap();
    assert!(reports.reports.iter().any(|report| &*report.path == "resident"));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
    assert!(save(directory.join("missing/a.json.gz"), &ReportOptions::default()).is_err());
    assert!(save("/", &ReportOptions::default()).is_err());
    std::fs::remove_dir_all(directory).unwrap();
}

fn tempfile() -> std::path::PathBuf {
    let directory = std::env::temp_dir().join(format!("heapledger-report-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}
