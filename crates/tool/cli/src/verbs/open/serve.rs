//! Serves the page, and opens the browser.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use heapledger_viewer::{Memory, Viewer, ViewerOptions};

use super::save;
use super::session::Session;
use crate::args::{Open, SymbolFiles};
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::input::Input;
use crate::json::document::Form;
use crate::messages::notify;
use crate::output::Output;

pub(super) fn run(arguments: &Open, out: &mut Output) -> Result<()> {
    let paths = match &arguments.files[..] {
        [] => vec![Input::find(None)?.path],
        files => files.to_vec(),
    };
    let session = Session::new(paths, symbol_options(&arguments.symbols))?;
    if let Some(path) = &arguments.save {
        return save::run(&session, path, arguments, out);
    }
    let options = ViewerOptions { port: arguments.port, ..ViewerOptions::default() };
    let bound = options.kept_bytes_max as u64;
    let viewer = Viewer::listen(options).map_err(|error| cannot_listen(error, arguments.port))?;
    let url = viewer.url().map_err(|error| cannot_listen(error, arguments.port))?;
    if arguments.json {
        let memory = Memory { bound, ..Memory::default() };
        out.document(&session.to_json(Some(url), &memory), Form::Json)?;
    } else {
        out.line(&url)?;
    }
    out.stream().flush()?;
    notify(format_args!("heapledger: showing {} until Ctrl-C", session.names().join(", ")));
    if !arguments.no_browser {
        open_browser(&viewer);
    }
    viewer.serve(Arc::new(session)).map_err(|error| cannot_listen(error, arguments.port))
}

/// Opens the page in the browser. If there is none, the user has the address.
fn open_browser(viewer: &Viewer) {
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"].iter().any(|name| env::var_os(name).is_some());
    let opened = match viewer.url_once() {
        Ok(url) if has_display => open::that_detached(url),
        Ok(_) => Err(io::Error::other("there is no display")),
        Err(error) => Err(error),
    };
    if let Err(error) = opened {
        notify(format_args!("heapledger: no browser was opened: {error}\nhint: open the address above in one"));
    }
}

fn cannot_listen(error: io::Error, port: u16) -> Failure {
    let what = match port {
        0 => "cannot serve the page".to_owned(),
        port => format!("cannot serve the page on port {port}"),
    };
    let failure = Failure::caused(Exit::Unexpected, what, error).code(Code::CannotListen);
    failure.hint("without --port, any free one is taken")
}

/// Returns the options of verbs that name the same files.
fn symbol_options(files: &SymbolFiles) -> Vec<(&'static str, OsString)> {
    let of = |name, paths: &[PathBuf]| {
        paths.iter().map(move |path| (name, path.clone().into_os_string())).collect::<Vec<_>>()
    };
    let lists =
        [("debug-dir", &files.debug_dir), ("symbols", &files.search), ("breakpad-symbols", &files.breakpad_symbols)];
    let mut options: Vec<_> = lists.into_iter().flat_map(|(name, paths)| of(name, paths)).collect();
    options.extend(files.sysroot.iter().map(|path| ("sysroot", path.clone().into_os_string())));
    options
}
