//! `heapledger anonymize`: a recording that can be shown to others.

use heapledger_analysis::rewrite::{self, Kept};

use crate::args::Anonymize;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::input::Input;
use crate::new_file::NewFile;

/// The minimum length of a key, in bytes: shorter ones could be guessed.
const KEY_MIN: usize = 16;

pub(crate) fn run(arguments: &Anonymize) -> Result<()> {
    let key = key(arguments)?;
    let input = Input::find(arguments.file.as_deref())?;
    let recording = input.open()?;
    let mut inputs = vec![&*input.path];
    inputs.extend(arguments.key_file.as_deref());
    let target = NewFile::recording(&arguments.target, &inputs)?;
    let kept =
        Kept { names: arguments.keep_names, functions: arguments.keep_functions, build_ids: arguments.keep_build_ids };
    let damage = rewrite::anonymize(&recording, kept, &key, target.draft()?).map_err(|error| target.failed(error))?;
    input.warn_of(&damage);
    target.keep()
}

/// Returns the given key, or a random one that nobody knows.
fn key(arguments: &Anonymize) -> Result<Vec<u8>> {
    let Some(path) = &arguments.key_file else {
        let mut key = [0; 32];
        let filled = rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty());
        return match filled {
            Ok(length) if length == key.len() => Ok(key.to_vec()),
            Ok(_) => Err(Failure::new(Exit::Unexpected, "the system gave too few random bytes for a key")),
            Err(error) => Err(Failure::caused(Exit::Unexpected, "the system gave no random bytes for a key", error)),
        };
    };
    let cannot = |error| Failure::caused(Exit::Unreadable, format_args!("cannot read `{}`", path.display()), error);
    let key = std::fs::read(path).map_err(cannot)?;
    if key.len() < KEY_MIN {
        return Err(Failure::new(Exit::Usage, format_args!("the key in `{}` is too short", path.display()))
            .hint(format_args!("make one: head -c 32 /dev/urandom > {}", path.display())));
    }
    Ok(key)
}
