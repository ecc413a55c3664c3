//! The page of about:memory: requests in, responses out.
//!
//! - [`Source`]: the subject of the page. A running program, or [`Files`].
//! - [`Handler`]: the [`Responder`] to a [`HttpRequest`], wherever it comes from.
//! - [`Connection`]: the same over HTTP/1.1, for the owner of a socket.
//!
//! The browser requests the rows that it shows, and no others: a page of 100,000 lines is as fast
//! as one of a hundred. Everything it needs is compiled in (`assets/`), and nothing is requested
//! from elsewhere.
//!
//! Pure: it reads no clock and opens no socket; a [`Source`] may.
#![forbid(unsafe_code)]

mod cache;
mod dark;
mod files;
mod handler;
mod rows;
mod source;
mod view;

pub use handler::{Handler, PageOptions};
pub use heapledger_http::{Connection, Hosts, HttpRequest, HttpResponse, Responder};
pub use source::{Capabilities, Files, MeasureOptions, Source};
