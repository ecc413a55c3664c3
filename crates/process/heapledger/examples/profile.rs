//! A program that does what services do, with its profile always on: `profile [PORT [SECONDS]]`.
//! Four threads answer "requests", which keep something in a cache now and then; the profile is at
//! the address that it prints. `docs/profile.md` looks at it.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use heapledger::profile::{self, ProfileServer, ProfileServerOptions};
use heapledger::{Allocator, context};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

/// A cache whose entries are never removed.
static CACHE: Mutex<BTreeMap<u64, Vec<u8>>> = Mutex::new(BTreeMap::new());

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let port = u16::try_from(arguments.next().transpose()?.unwrap_or(0))?;
    let seconds = arguments.next().transpose()?.unwrap_or(u64::MAX);

    profile::start(profile::ProfileOptions::default())?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let server = ProfileServer::start(ProfileServerOptions { address, ..ProfileServerOptions::default() })?;
    println!("go tool pprof {}/heap", server.url());

    let until = Instant::now().checked_add(Duration::from_secs(seconds));
    let threads: Vec<_> = (0..4).map(|number| thread::spawn(move || work(number, until))).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    println!("{}", profile::state().totals);
    Ok(())
}

fn work(number: u64, until: Option<Instant>) {
    for request in (number..).step_by(4) {
        if until.is_some_and(|until| Instant::now() >= until) {
            return;
        }
        answer(request);
        thread::sleep(Duration::from_millis(1));
    }
}

fn answer(request: u64) {
    let _scope = context!("request");
    let page = render(request);
    if request % 16 == 0 {
        remember(request, &page);
    }
}

#[inline(never)]
fn render(request: u64) -> Vec<u8> {
    let _scope = context!("render");
    let lines: Vec<String> = (0..200).map(|line| format!("line {line} of {request}\n")).collect();
    black_box(lines.concat().into_bytes())
}

#[inline(never)]
fn remember(request: u64, page: &[u8]) {
    CACHE.lock().expect("nobody panics").insert(request, page.to_vec());
}
