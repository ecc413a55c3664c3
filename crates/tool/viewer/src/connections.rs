//! The connections of a server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::router::Router;

/// The maximum number of connections at once. Others wait to be accepted. A browser opens six for
/// a page.
const CONNECTIONS_MAX: usize = 64;
/// The time in which the head of a request must have come, also on a connection that is kept open.
const HEAD_TIME: Duration = Duration::from_secs(60);
/// The maximum size of the head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// The time until the next attempt to accept a connection, after an error such as too many files.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Serves clients for as long as the program runs.
pub(crate) async fn serve(listener: std::net::TcpListener, router: Arc<Router>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // It is never closed, so this cannot fail.
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = Arc::clone(&router);
                tokio::spawn(async move {
                    connection(stream, router).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(RETRY_AFTER).await,
        }
    }
}

/// Answers the requests of one connection. An error ends it, and nobody else needs to know.
async fn connection(stream: TcpStream, router: Arc<Router>) {
    let service = service_fn(|request| router.respond(request));
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
