//! Chunks that are a sequence of messages: as a protocol buffer, `repeated Record record = 1`.
//!
//! They are parsed one message at a time, so that a chunk of a million empty messages costs no more
//! than one.

use std::marker::PhantomData;

use prost::Message;

use crate::error::Reason;
use crate::head::CHUNK_ROWS_MAX;
use crate::varint::{self, Varints};

/// The key of field 1, with a length.
const KEY: u64 = 1 << 3 | 2;

/// The error of a chunk whose head promises another number of messages.
pub(crate) const WRONG_NUMBER: Reason = Reason::Invalid("the number of messages");

/// Appends a message.
pub(crate) fn put(out: &mut Vec<u8>, message: &impl Message) {
    varint::put(out, KEY);
    varint::put(out, message.encoded_len() as u64);
    message.encode_raw(out);
}

/// Returns an upper bound for the bytes that [`put`] appends.
pub(crate) fn put_len(message: &impl Message) -> usize {
    message.encoded_len() + 11
}

/// Returns the messages of a chunk. Ends after an error.
pub(crate) fn read<M: Message + Default>(contents: &[u8]) -> Messages<'_, M> {
    Messages { contents: Varints::new(contents), left: CHUNK_ROWS_MAX, message: PhantomData }
}

pub(crate) struct Messages<'a, M> {
    contents: Varints<'a>,
    left: usize,
    message: PhantomData<M>,
}

impl<M: Message + Default> Iterator for Messages<'_, M> {
    type Item = Result<M, Reason>;

    fn next(&mut self) -> Option<Result<M, Reason>> {
        while !self.contents.is_empty() {
            let message = match field(&mut self.contents) {
                Some((KEY, _)) if self.left == 0 => Err(Reason::Invalid("more messages than a chunk may have")),
                Some((KEY, message)) => M::decode(message).map_err(|_| Reason::Invalid("a message")),
                // A field that a newer version added.
                Some(_) => continue,
                None => Err(Reason::Invalid("a message is cut short")),
            };
            match message {
                Ok(_) => self.left -= 1,
                Err(_) => self.contents = Varints::new(&[]),
            }
            return Some(message);
        }
        None
    }
}

/// Returns the key of the next field, and its bytes if it has a length.
fn field<'a>(contents: &mut Varints<'a>) -> Option<(u64, &'a [u8])> {
    let key = contents.next()?;
    let bytes = match key & 7 {
        0 => contents.next().map(|_| &[][..]),
        1 => contents.take(8),
        2 => contents.next().and_then(|length| contents.take(length)),
        5 => contents.take(4),
        _ => None,
    }?;
    Some((key, bytes))
}
