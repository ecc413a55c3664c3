//! The page that programs serve of themselves, of what this command has read.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use heapledger_page::{Connection, Files, Handler, Options};

use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output::tell;

/// A request must be whole after this long, and an answer taken.
const PATIENCE: Duration = Duration::from_secs(30);

/// Serves a page to this machine, until the command is interrupted. `fill` gives it what is to be shown.
pub(crate) fn serve(title: String, fill: impl FnOnce(&Handler)) -> Result<()> {
    let cannot = |error: io::Error| Failure::caused(Exit::Unexpected, "cannot serve a page", error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(cannot)?;
    let base = format!("/{}", token().map_err(cannot)?);
    let handler = Arc::new(Handler::new(Files(title), Options { base: base.clone(), ..Options::default() }));
    fill(&handler);
    tell(format_args!("about:memory at http://{}{base}/, until Ctrl-C", listener.local_addr().map_err(cannot)?));
    loop {
        // An error is of the connection that was to be, or passes: there will be others.
        if let Ok((stream, _)) = listener.accept() {
            let handler = Arc::clone(&handler);
            let exchange = move || {
                // Who does not take the answer goes without it.
                let _ = exchange(stream, &handler);
            };
            let _ = thread::Builder::new().spawn(exchange);
        }
    }
}

fn exchange(mut stream: TcpStream, handler: &Handler) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut connection = Connection::new();
    let mut bytes = [0; 16 << 10];
    while !connection.is_over() {
        if connection.wants_input() {
            match stream.read(&mut bytes)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => connection.receive(&bytes[..count], handler),
            }
        } else {
            let count = stream.write(connection.output())?;
            connection.sent(count, handler);
        }
    }
    // To close before all is read that was sent would take the answer from who sent it.
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    while stream.read(&mut bytes)? > 0 {}
    Ok(())
}

/// 128 bits that nobody can guess.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
