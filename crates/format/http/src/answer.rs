//! The answer to a request, for its client.

use std::io::{self, Cursor, ErrorKind, Read};

use crate::connection::HEADERS_MAX;

/// The longest status line and headers together, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// An answer whose head has been read. Reading from it reads the body, until the server closes the
/// connection.
#[derive(Debug)]
pub struct HttpAnswer<S> {
    /// The HTTP status.
    pub status: u16,
    /// The words after the status.
    pub reason: String,
    /// The length of the body in bytes, if the server states it.
    pub content_length: Option<u64>,
    body: io::Chain<Cursor<Vec<u8>>, S>,
}

impl<S: Read> HttpAnswer<S> {
    /// Reads the head of an answer.
    ///
    /// # Errors
    ///
    /// Errors of the stream; `InvalidData` if its bytes do not begin with the head of an answer.
    pub fn read(mut stream: S) -> io::Result<HttpAnswer<S>> {
        let (mut start, mut bytes) = (Vec::new(), [0; 4096]);
        loop {
            let mut space = [httparse::EMPTY_HEADER; HEADERS_MAX];
            let mut head = httparse::Response::new(&mut space);
            match head.parse(&start) {
                Ok(httparse::Status::Complete(length)) => {
                    let status = head.code.ok_or_else(no_http)?;
                    let reason = head.reason.unwrap_or_default().to_owned();
                    let stated = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("Content-Length"));
                    let stated = stated.and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok());
                    let body = Cursor::new(start.split_off(length)).chain(stream);
                    return Ok(HttpAnswer { status, reason, content_length: stated, body });
                }
                Ok(httparse::Status::Partial) if start.len() < HEAD_BYTES_MAX => {}
                _ => return Err(no_http()),
            }
            match stream.read(&mut bytes) {
                Ok(0) => return Err(no_http()),
                Ok(count) => start.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl<S: Read> Read for HttpAnswer<S> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.body.read(to)
    }
}

fn no_http() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the server does not speak HTTP/1.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_head_and_a_body() {
        let bytes = b"HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\nwhy";
        // However the bytes come.
        for split in 0..bytes.len() {
            let (start, rest) = bytes.split_at(split);
            let mut answer = HttpAnswer::read(start.chain(rest)).unwrap();
            assert_eq!((answer.status, &*answer.reason, answer.content_length), (404, "Not Found", Some(3)));
            let mut body = String::new();
            answer.read_to_string(&mut body).unwrap();
            assert_eq!(body, "why");
        }
        for wrong in [&b""[..], b"SSH-2.0\r\n", b"220 smtp.example.org\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 \xff"] {
            assert_eq!(HttpAnswer::read(wrong).unwrap_err().kind(), ErrorKind::InvalidData, "{wrong:?}");
        }
        let endless = io::Read::chain(&b"HTTP/1.1 200 OK\r\nA: "[..], io::repeat(b'a'));
        assert_eq!(HttpAnswer::read(endless).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
