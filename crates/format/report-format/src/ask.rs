//! The protocol by which one process asks another on the same machine, over a Unix socket with an
//! abstract name. Each user of the protocol adds only its message types.
//!
//! - The client writes one line ([`RequestLine`]) and reads the answer until the end of the stream.
//!   A process that does not know the request, or its version, closes the connection.
//! - A process listens at a name that has its pid (`listen`, `serve`); clients find the name in the
//!   kernel's list of sockets (`ListedSocket`) and connect (`Connecting`). These are in the feature
//!   `sockets`, for Linux.
//! - Both sides first ask the kernel for the identity of the other (`Peer`): the server checks the
//!   client's user, the client also the process.

#[cfg(feature = "sockets")]
mod connecting;
mod line;
#[cfg(feature = "sockets")]
mod listed;
#[cfg(feature = "sockets")]
mod peer;
#[cfg(feature = "sockets")]
mod server;

#[cfg(feature = "sockets")]
pub use connecting::Connecting;
pub use line::{REQUEST_BYTES_MAX, RequestLine, VERSION, refusal, refused};
#[cfg(feature = "sockets")]
pub use listed::ListedSocket;
#[cfg(feature = "sockets")]
pub use peer::{Impostor, Peer, PeerOf, is_impostor};
#[cfg(feature = "sockets")]
pub use server::{listen, serve, stop_serving};
