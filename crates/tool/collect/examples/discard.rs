//! Plays the recorder for benches, and throws all events away.
//!
//! Prints the value of `HEAPLEDGER_SESSION` for programs; with `--sample`, for a session that
//! samples. Then reads commands from standard input, a line each, and answers `ok`: `mode N` sets
//! the bits of the session's mode, `rate N` the logarithm of the mean distance of sample points.
//! Ends with its input.

use std::error::Error;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use heapledger_collect::DiscardingSession;

/// The interval at which rings are emptied.
const INTERVAL: Duration = Duration::from_millis(1);

fn main() -> Result<(), Box<dyn Error>> {
    let mut session = DiscardingSession::new(std::env::args().any(|argument| argument == "--sample"))?;
    println!("{}", session.environment().display());
    let (sender, commands) = channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    loop {
        match commands.recv_timeout(INTERVAL) {
            Ok(command) => {
                let (name, number) = command.split_once(' ').ok_or("a command is a name and a number")?;
                let value = match name {
                    "mode" => &session.page().mode,
                    "rate" => &session.page().rate,
                    _ => return Err(format!("unknown command `{name}`").into()),
                };
                value.store(number.parse()?, Ordering::Relaxed);
                println!("ok");
            }
            Err(RecvTimeoutError::Timeout) => session.discard(),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}
