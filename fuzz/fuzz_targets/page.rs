//! Requests to the page about:memory. Property tests of the same code are in
//! `crates/format/web/tests/requests.rs`.
#![no_main]

use heapledger_web::{Connection, Files, Handler, PageOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let options = PageOptions { base: "/secret".into(), file_bytes_max: 10_000, ..PageOptions::default() };
    let handler = Handler::new(Files("files".into()), options);
    let mut connection = Connection::new();
    for piece in data.chunks(1000) {
        while !connection.output().is_empty() {
            connection.sent(connection.output().len(), &handler);
        }
        if connection.is_over() {
            break;
        }
        connection.receive(piece, &handler);
    }
});
