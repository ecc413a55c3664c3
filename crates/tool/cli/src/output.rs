//! The answer of a verb: to stdout, or to the file that replaces it.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use heapledger_report_format::about::Page;
use heapledger_report_format::{Layout, Tree};

use crate::args::{self, Color, Written};
use crate::error::{Failure, Result, hint_lines};
use crate::exit::Exit;
use crate::format::wrapped;
use crate::input::Input;
use crate::json::document::{self, Document, Form};
use crate::messages::{WIDTH_MIN, notify};
use crate::new_file::NewFile;

/// Standard output, with its colours and width.
pub(crate) struct Output {
    stdout: Box<dyn Write>,
    /// The file that replaces standard output.
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
            width: width.filter(|&width| width >= WIDTH_MIN),
        }
    }

    /// Redirects output to a file: a new one, or an existing one that `force` replaces. The file is
    /// not visible before it is complete. None of `inputs` is overwritten.
    pub(crate) fn direct(&mut self, path: &Path, force: bool, inputs: &[&Path]) -> Result<()> {
        let file = NewFile::create(path, force, inputs)?;
        if let Some(stream) = file.stream()? {
            self.stdout = Box::new(BufWriter::new(stream));
            (self.colors, self.width) = (false, None);
        }
        self.file = Some(file);
        Ok(())
    }

    /// Redirects output to a picture named after the recording: NAME.WHAT.svg for NAME.hl, in the
    /// current directory, unless output goes to a file already.
    pub(crate) fn draw_to_default(&mut self, input: &Input, what: &str, written: &Written) -> Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        let name = input.path.file_name().unwrap_or_default();
        let name = Path::new(name).with_extension("");
        let name = format!("{}.{what}.svg", name.display());
        self.direct(Path::new(&name), written.force, &[&input.path])
    }

    /// Creates an output to another stream, without colours.
    #[cfg(any(test, feature = "viewer"))]
    pub(crate) fn into(stream: impl Write + 'static) -> Output {
        Output { stdout: Box::new(stream), file: None, hint: None, colors: false, width: None }
    }

    /// Writes a heading.
    pub(crate) fn title(&mut self, title: impl fmt::Display) -> io::Result<()> {
        let (start, end) = if self.colors { BOLD } else { PLAIN };
        let title = self.fitted(title);
        writeln!(self.stdout, "{start}{title}{end}")
    }

    /// Writes a less important line.
    pub(crate) fn dim_line(&mut self, text: impl fmt::Display) -> io::Result<()> {
        let (start, end) = if self.colors { DIM } else { PLAIN };
        let text = self.fitted(text);
        writeln!(self.stdout, "{start}{text}{end}")
    }

    /// Breaks lines wider than the terminal between words.
    fn fitted(&self, text: impl fmt::Display) -> String {
        let text = text.to_string();
        let Some(width) = self.width else { return text };
        let lines = text.split('\n').flat_map(|line| match line.chars().count() > width {
            true => wrapped(line, width),
            false => vec![line.to_owned()],
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> io::Result<()> {
        writeln!(self.stdout, "{text}")
    }

    /// Returns the width of the terminal, if output goes to one.
    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }

    /// True if output may have colours.
    pub(crate) fn has_colors(&self) -> bool {
        self.colors
    }

    /// Writes a tree, or a table with its text on the right.
    pub(crate) fn tree(&mut self, tree: &Tree) -> io::Result<()> {
        let (note, heading) = if self.colors { (DIM, BOLD) } else { (PLAIN, PLAIN) };
        let mut text = Formatted { out: &mut self.stdout, failed: Ok(()) };
        match tree.print(&mut text, &Layout { width: self.width, note, heading }) {
            Ok(()) => Ok(()),
            Err(fmt::Error) => text.failed,
        }
    }

    /// Writes a page of memory reports, as about:memory shows it.
    pub(crate) fn page(&mut self, page: &Page) -> io::Result<()> {
        let mut text = Formatted { out: &mut self.stdout, failed: Ok(()) };
        match page.print(&mut text) {
            Ok(()) => Ok(()),
            Err(fmt::Error) => text.failed,
        }
    }

    /// Writes a machine-readable document.
    pub(crate) fn document(&mut self, document: &impl Document, form: Form) -> Result<()> {
        document::write(document, form, &mut *self.stdout)
    }

    /// Returns the stream itself.
    pub(crate) fn stream(&mut self) -> &mut impl Write {
        &mut self.stdout
    }

    /// Sets the hint on how to see more. It is written after everything else, for people only.
    pub(crate) fn hint(&mut self, hint: Option<String>) {
        self.hint = hint;
    }

    /// Writes what is still buffered, and keeps the file. Must be the last call.
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
            notify(format_args!("\n{}", hint_lines(&hint)));
        }
        Ok(())
    }
}

impl args::Input {
    /// Finds the recording to read, and begins the output file, if the options name one.
    pub(crate) fn find(&self, out: &mut Output) -> Result<Input> {
        self.find_as(false, out)
    }

    /// Fails if mappings are to be counted in place of blocks. `what` is about blocks alone; `hint`
    /// is another question.
    pub(crate) fn needs_blocks(&self, counts_mappings: bool, what: &str, hint: &str) -> Result<()> {
        if !self.mappings && !counts_mappings {
            return Ok(());
        }
        let what = format_args!("{what} about blocks, not about mappings");
        Err(Failure::new(Exit::Usage, what).hint(hint))
    }

    /// Does the same as `find`; with `counts_mappings` or the option of that name, the answer is
    /// about mappings.
    pub(crate) fn find_as(&self, counts_mappings: bool, out: &mut Output) -> Result<Input> {
        let mut input = Input::find(self.file.as_deref())?;
        if self.mappings || counts_mappings {
            input = input.into_mappings()?;
        }
        if let Some(target) = &self.written.output {
            out.direct(target, self.written.force, &[&input.path])?;
        }
        Ok(input)
    }
}

/// True if colours are to be used on a stream.
pub(crate) fn use_colors(color: Color, is_terminal: bool) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}

/// An adapter that writes formatted text to a byte stream, and keeps the error.
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
