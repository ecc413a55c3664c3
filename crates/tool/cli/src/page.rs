//! The page that programs serve about themselves, here for the files that this command has read.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

use heapledger_http::random_token;
use heapledger_web::{Files, Handler, PageOptions};

use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::messages::notify;

/// Serves a page to this machine until the command is interrupted. `fill` gives the handler its
/// contents.
pub(crate) fn serve(title: String, fill: impl FnOnce(&Handler)) -> Result<()> {
    let cannot = |error: io::Error| Failure::caused(Exit::Unexpected, "cannot serve a page", error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let base = format!("/{}", random_token().map_err(cannot)?);
    let handler = Handler::new(Files(title), PageOptions { base: base.clone(), ..PageOptions::default() });
    fill(&handler);
    notify(format_args!("about:memory at http://{}{base}/, until Ctrl-C", listener.local_addr().map_err(cannot)?));
    heapledger_http::serve(&listener, &handler, |_| None);
    Ok(())
}
