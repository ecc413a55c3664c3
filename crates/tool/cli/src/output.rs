//! Where output goes: data to stdout, everything else to stderr.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use heapledger_reports::about::Page;
use heapledger_reports::{Layout, Tree};

use crate::args::{Color, Written};
use crate::code::Code;
use crate::document::{self, Document, Form};
use crate::error::{Result, hint_lines};
use crate::format::wrapped;
use crate::input::Input;
use crate::new_file::NewFile;

/// Standard output, and how to write to it.
pub(crate) struct Output {
    stdout: Box<dyn Write>,
    /// The file that is written in place of it.
    file: Option<NewFile>,
    hint: Option<String>,
    colors: bool,
    width: Option<usize>,
}

const BOLD: (&str, &str) = ("\x1b[1m", "\x1b[0m");
const DIM: (&str, &str) = ("\x1b[2m", "\x1b[0m");
const PLAIN: (&str, &str) = ("", "");

impl Output {
    pub(crate) fn new(color: Color) -> Output {
        let stdout = io::stdout().lock();
        let colors = use_colors(color, stdout.is_terminal());
        let width = rustix::termios::tcgetwinsize(&stdout).ok().map(|size| usize::from(size.ws_col));
        Output {
            stdout: Box::new(BufWriter::new(stdout)),
            file: None,
            hint: None,
            colors,
            width: width.filter(|&width| width >= 40),
        }
    }

    /// Writes to a file from now on: a new one, unless it is to be replaced by `force`. No one sees it before it is
    /// whole. `inputs` are not written.
    pub(crate) fn direct(&mut self, path: &Path, force: bool, inputs: &[&Path]) -> Result<()> {
        let file = NewFile::create(path, force, inputs)?;
        if let Some(stream) = file.stream()? {
            self.stdout = Box::new(BufWriter::new(stream));
            (self.colors, self.width) = (false, None);
        }
        self.file = Some(file);
        Ok(())
    }

    /// Writes to a picture of a recording from now on: NAME.WHAT.svg of NAME.hl, in the current directory, if no other
    /// file is written already.
    pub(crate) fn draw_beside(&mut self, input: &Input, what: &str, written: &Written) -> Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        let name = input.path.file_name().unwrap_or_default();
        let name = Path::new(name).with_extension("");
        let name = format!("{}.{what}.svg", name.display());
        self.direct(Path::new(&name), written.force, &[&input.path])
    }

    /// The same into something else, without colours.
    #[cfg(test)]
    pub(crate) fn into(stream: impl Write + 'static) -> Output {
        Output { stdout: Box::new(stream), file: None, hint: None, colors: false, width: None }
    }

    /// A line that says what follows.
    pub(crate) fn title(&mut self, title: impl fmt::Display) -> io::Result<()> {
        let (start, end) = if self.colors { BOLD } else { PLAIN };
        let title = self.fitted(title);
        writeln!(self.stdout, "{start}{title}{end}")
    }

    /// A line of less importance.
    pub(crate) fn aside(&mut self, text: impl fmt::Display) -> io::Result<()> {
        let (start, end) = if self.colors { DIM } else { PLAIN };
        let text = self.fitted(text);
        writeln!(self.stdout, "{start}{text}{end}")
    }

    /// A text whose lines are broken between words where the terminal would break them.
    fn fitted(&self, text: impl fmt::Display) -> String {
        let text = text.to_string();
        let Some(width) = self.width else { return text };
        let lines = text.split('\n').flat_map(|line| match line.chars().count() > width {
            true => wrapped(line, width),
            false => vec![line.to_owned()],
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// A line.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> io::Result<()> {
        writeln!(self.stdout, "{text}")
    }

    /// The width of the terminal, if it is one.
    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }

    /// Whether there may be colours.
    pub(crate) fn has_colors(&self) -> bool {
        self.colors
    }

    /// A tree, or a table with its text on the right.
    pub(crate) fn tree(&mut self, tree: &Tree) -> io::Result<()> {
        let (note, heading) = if self.colors { (DIM, BOLD) } else { (PLAIN, PLAIN) };
        let mut text = Formatted { out: &mut self.stdout, failed: Ok(()) };
        match tree.print(&mut text, &Layout { width: self.width, note, heading }) {
            Ok(()) => Ok(()),
            Err(fmt::Error) => text.failed,
        }
    }

    /// What about:memory shows.
    pub(crate) fn page(&mut self, page: &Page) -> io::Result<()> {
        let mut text = Formatted { out: &mut self.stdout, failed: Ok(()) };
        match page.print(&mut text) {
            Ok(()) => Ok(()),
            Err(fmt::Error) => text.failed,
        }
    }

    /// An answer for programs.
    pub(crate) fn document(&mut self, document: &impl Document, form: Form) -> Result<()> {
        document::write(document, form, &mut self.stdout)
    }

    /// The stream itself.
    pub(crate) fn stream(&mut self) -> &mut impl Write {
        &mut self.stdout
    }

    /// Something that can be done to see more: said after all else, to people only.
    pub(crate) fn hint(&mut self, hint: Option<String>) {
        self.hint = hint;
    }

    /// Writes what is still held back. Must be the last call.
    pub(crate) fn finish(mut self) -> Result<()> {
        match self.file {
            None => self.stdout.flush()?,
            Some(file) => {
                self.stdout.flush().map_err(|error| file.cannot(error))?;
                drop(self.stdout);
                file.keep()?;
            }
        }
        if let Some(hint) = self.hint.filter(|_| io::stderr().is_terminal()) {
            tell(format_args!("\n{}", hint_lines(&hint)));
        }
        Ok(())
    }
}

/// Whether to use colours on a stream.
fn use_colors(color: Color, is_terminal: bool) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}

/// A line on stderr. That nobody reads it is no error.
pub(crate) fn tell(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A warning on stderr.
pub(crate) fn warn(code: Code, text: impl fmt::Display) {
    tell(format_args!("warning[{code}]: {text}"));
}

/// Text into a stream of bytes.
struct Formatted<'w, W> {
    out: &'w mut W,
    failed: io::Result<()>,
}

impl<W: Write> fmt::Write for Formatted<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.out.write_all(text.as_bytes()).map_err(|error| {
            self.failed = Err(error);
            fmt::Error
        })
    }
}
