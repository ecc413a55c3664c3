//! `heapledger export`: a recording in the formats of other tools.

use std::io::{self, Write};

use clap::ValueEnum;
use heapledger_analysis::Moment;
use heapledger_profile_formats::chrome::{Cut, HeapFormat};
use heapledger_profile_formats::{
    Holds, Profile, chrome, collapsed, dhat, gperftools, heapprofile, massif, otlp, perfetto, pprof, speedscope,
};

use crate::args::Export;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::flame;
use crate::input::Input;
use crate::new_file::NewFile;
use crate::output::{Output, notify};
use crate::question::Question;
use crate::sampled;

mod events;
mod gather;

/// The formats that can be written. A new one is a variant here, its writer below, and a module of
/// `heapledger-profile-formats`. The doc comments of the variants are printed in the help of
/// `--to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For `go tool pprof`, Speedscope, Grafana Pyroscope and others
    Pprof,
    /// For Valgrind's dh_view.html and the Firefox Profiler: total, peak, end and lifetimes in one
    /// file
    Dhat,
    /// Lines `outer;…;inner FIGURE`, for flame graph tools, Speedscope, Perfetto and the Firefox
    /// Profiler
    Collapsed,
    /// A picture that browsers show
    Flamegraph,
    /// For speedscope.app: a profile for each kind of amount
    Speedscope,
    /// V8's format, for Chrome's DevTools and Speedscope
    Heapprofile,
    /// The text format of gperftools, for google-pprof and `go tool pprof`: addresses without names
    Gperftools,
    /// Valgrind's format, for ms_print and massif-visualizer: what was live over time, and by stack
    /// at the peak and at the end
    Massif,
    /// For heaptrack_print and heaptrack_gui: every allocation and free; compressed if the file's
    /// name ends in .zst or .gz
    Heaptrack,
    /// For profiler.firefox.com: every allocation and free, to be looked at for any range of time;
    /// compressed if the file's name ends in .gz
    Firefox,
    /// A trace with memory dumps, for Chrome's about:tracing and traceviewer: the parts that matter
    Chrome,
    /// The same for viewers from 2017 on: every stack and type
    ChromeV2,
    /// A trace with a heap profile, for ui.perfetto.dev and trace_processor
    Perfetto,
    /// Profiles for OpenTelemetry (v1development, version 1.10 of the protocol): not stable yet
    Otlp,
    /// A table, for DuckDB, pandas, Polars, Spark: a row for each stack, with all amounts (if it
    /// was built in)
    Parquet,
}

/// Writes a profile in one format.
type WriteProfile = Box<dyn Fn(&Profile, &mut dyn Write) -> io::Result<()>>;

/// The writer of one format.
enum Writer {
    /// Writes a profile; `Holds` says which data of it the format can hold.
    Profile(WriteProfile, Holds),
    /// Writes events, one by one.
    Events(events::EventFormat),
}

impl Format {
    fn writer(self, cut: Cut) -> Result<Writer> {
        let chrome = |heaps| Box::new(move |profile: &Profile, out: &mut dyn Write| chrome::write(profile, out, heaps));
        let (write, holds): (WriteProfile, Holds) = match self {
            Format::Heaptrack => return Ok(Writer::Events(events::EventFormat::Heaptrack)),
            Format::Firefox => return Ok(Writer::Events(events::EventFormat::Firefox)),
            Format::Massif => (Box::new(massif::write), massif::HOLDS),
            Format::Pprof => (Box::new(pprof::write), pprof::HOLDS),
            Format::Dhat => (Box::new(dhat::write), dhat::HOLDS),
            Format::Collapsed => (Box::new(collapsed::write), collapsed::HOLDS),
            Format::Flamegraph => (Box::new(flame::write), collapsed::HOLDS),
            Format::Speedscope => (Box::new(speedscope::write), speedscope::HOLDS),
            Format::Heapprofile => (Box::new(heapprofile::write), heapprofile::HOLDS),
            Format::Gperftools => (Box::new(gperftools::write), gperftools::HOLDS),
            Format::Chrome => (chrome(HeapFormat::Entries(cut)), chrome::HOLDS),
            Format::ChromeV2 => (chrome(HeapFormat::Aggregated), chrome::HOLDS),
            Format::Perfetto => (Box::new(perfetto::write), perfetto::HOLDS),
            Format::Otlp => (Box::new(otlp::write), otlp::HOLDS),
            #[cfg(feature = "parquet")]
            Format::Parquet => {
                (Box::new(heapledger_profile_formats::parquet::write), heapledger_profile_formats::parquet::HOLDS)
            }
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => {
                let what = "this heapledger cannot write Parquet: it was built without the feature `parquet`";
                let hint = "cargo install --locked --path crates/tool/cli --features parquet";
                return Err(Failure::new(Exit::Usage, what).hint(hint));
            }
        };
        Ok(Writer::Profile(write, holds))
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

pub(crate) fn run(arguments: &Export, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve(arguments.file.as_ref().and_then(|file| file.at))?;
    let writer = arguments.to.writer(arguments.cut)?;
    let input = Input::find(arguments.file.as_deref())?;
    let recording = input.open()?;
    let target = NewFile::create(&arguments.output, arguments.force, &[&input.path])?;
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    let name = arguments.to.name();
    let (write, holds) = match writer {
        Writer::Profile(write, holds) => (write, holds),
        Writer::Events(format) => {
            question.profile()?;
            // The moment is the end of the events that are written.
            if !arguments.what.has_moment(arguments.file.as_ref().and_then(|file| file.at))
                && question.selection.filter.allocated.is_none()
            {
                question.selection.moment = Moment::End;
            }
            let (profile, notices) = events::export(question, format, arguments, target, out)?;
            notices.into_iter().for_each(|notice| notify(format_args!("heapledger: {notice}")));
            if let Some(notice) = sampled::notice(&recording) {
                notify(format_args!(
                    "heapledger: this is {notice}; each block of it has the bytes that it stands for, and counts once"
                ));
            }
            notify_of_lost(&name, &format.holds(), &profile);
            return Ok(());
        }
    };
    let profile = gather::profile(question, &holds)?;
    if profile.samples.is_empty() {
        return Err(Failure::new(Exit::NothingRecorded, "there is nothing to export: no block was allocated"));
    }
    if holds.one_figure && profile.samples.iter().all(|sample| profile.shown.of(&sample.amounts) == 0) {
        let what = "there is nothing to export: no such memory was in use at that moment";
        return Err(Failure::new(Exit::NothingRecorded, what).hint("all that was ever allocated: add --total"));
    }
    if let Some(notice) = sampled::notice(&recording) {
        notify(format_args!("heapledger: this is {notice}"));
    }
    notify_of_lost(&name, &holds, &profile);
    let unknown = holds.unknown(&profile);
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        notify(format_args!("heapledger: {name} asks for {unknown}, which this recording does not tell"));
    }
    target.write(out.stream(), |out| write(&profile, out))
}

/// Prints which data of the profile is lost because the format cannot hold it.
fn notify_of_lost(name: &str, holds: &Holds, profile: &Profile) {
    let lost = holds.lost(profile);
    if !lost.is_empty() {
        notify(format_args!("heapledger: {name} has no place for {}", lost.join(", ")));
    }
}
