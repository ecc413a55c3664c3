//! Shells that the program starts by `system` and `popen`.

use core::ffi::{CStr, c_char};

use heapledger_core::sys;
use heapledger_recorder::follow::Executor;

use crate::additions::Added;
use crate::announce::{self, announce, followed};
use crate::child::{Child, ChildPath, ChildStatus};
use crate::environment::environ;

/// Calls `start` with a shell command that does what `command` does, in a shell that is recorded.
///
/// `system` and `popen` give their shell the program's `environ`, which must not change while other
/// threads may read it. So the command first exports the variables, then becomes a shell that runs
/// the original.
pub(crate) fn with_shell_command<R>(command: *const c_char, start: impl FnOnce(*const c_char) -> R) -> R {
    if command.is_null() {
        return start(command);
    }
    let mut found = ChildPath::default();
    let added = match Added::new(environ(), Child::Any, &mut found) {
        Ok(added) => added,
        Err(status) => return start_without(status, &mut found, command, start),
    };
    // SAFETY: `CStr::from_ptr` requires a live, NUL-terminated string: `command` is not null, and
    // one of *the program's arguments* (`exec`).
    let original = unsafe { CStr::from_ptr(command) }.to_bytes();
    let [preload, session, hooks] = added.entries();
    // Pieces, and whether each is in single quotes, so that quotes in it are to be escaped.
    // An armed program's `LD_PRELOAD` is in the shell's environment as it is.
    let has_preload = preload.iter().any(|part| !part.is_empty());
    let quote = (if has_preload { &b"'"[..] } else { &[] }, false);
    let end_of_quote = (if has_preload { &b"' "[..] } else { &[] }, false);
    let [name, rest @ ..] = preload;
    let [first, second, third, fourth, fifth, sixth] = rest.map(|part| (part, true));
    let pieces: [(&[u8], bool); 19] = [
        (b"export ", false),
        (name, false),
        quote,
        first,
        second,
        third,
        fourth,
        fifth,
        sixth,
        end_of_quote,
        (session[0], false),
        (session[1], false),
        (session[2], false),
        (b" ", false),
        (hooks[0], false),
        (hooks[1], false),
        (b"; exec /bin/sh -c '", false),
        (original, true),
        // The last word is `$0`, for which `system` and `popen` use `sh`.
        (b"' sh", false),
    ];
    let length = pieces.iter().map(|(bytes, _)| bytes.len()).sum::<usize>()
        + 3 * pieces.iter().flat_map(|(bytes, _)| bytes.iter()).filter(|&&byte| byte == b'\'').count()
        + 1;
    let Ok(memory) = sys::map_private(length) else { return start(command) };
    let mut to = memory;
    let mut put = |byte: u8| {
        // SAFETY: `length` counts every byte and three more for every quote; the mapping is zeroed,
        // so the end is there.
        unsafe {
            to.write(byte);
            to = to.add(1);
        }
    };
    for (bytes, is_quoted) in pieces {
        for &byte in bytes {
            if is_quoted && byte == b'\'' {
                b"'\\''".iter().for_each(|&byte| put(byte));
            } else {
                put(byte);
            }
        }
    }
    let result = start(memory.cast());
    // SAFETY: mapped above; `system` and `popen` have started their shell when they return.
    unsafe { sys::unmap(memory, length) };
    result
}

/// Calls `start` with the command as it is. A shell that is statically linked is followed.
fn start_without<R>(
    status: ChildStatus,
    found: &mut ChildPath,
    command: *const c_char,
    start: impl FnOnce(*const c_char) -> R,
) -> R {
    let (status, follower) = followed(status, Child::Any, found, Executor::Child);
    let Some(follower) = follower else {
        // The shell's process is not known.
        announce(status, 0, announce::ticks(), b"/bin/sh");
        return start(command);
    };
    // `system` returns when the shell has ended. The recorder has left this thread long before,
    // when the shell was made.
    let result = start(command);
    follower.stop();
    result
}
