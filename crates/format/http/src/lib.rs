//! HTTP/1.1 as a program serves it that is asked now and then: bytes in, bytes out.
//!
//! - [`Request`] and [`Response`], and who makes the one of the other: a [`Responder`].
//! - [`Connection`]: the bytes of a connection, for who has a socket. Bounded, whatever comes.
//! - [`Clients`]: the connections of a server, with deadlines.
//! - [`Hosts`]: what keeps pages of others in the same browser from asking.
//!
//! Pure: it opens no socket and reads no clock; streams and the time are given to it.
#![forbid(unsafe_code)]

mod access;
mod clients;
mod connection;
mod message;

pub use access::{Hosts, below};
pub use clients::{Clients, Interest};
pub use connection::{Connection, Later, Responder};
pub use message::{Request, Response};
