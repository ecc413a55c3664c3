//! `heapledger export`: a recording in the formats of other tools.

mod events;
mod gather;
mod history;
mod profile;

use std::io::{self, Write};

use heapledger_analysis::Moment;
use heapledger_profile_formats::chrome::{Cut, HeapFormat};
use heapledger_profile_formats::{
    Holds, Profile, chrome, collapsed, dhat, gperftools, heapprofile, massif, otlp, perfetto, pprof, speedscope,
};

use crate::args::{Export, ExportFormat};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::input::Input;
use crate::messages::notify;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::question::Question;
use crate::views::{flame_graph, sampled};

pub(crate) fn run(arguments: &Export, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve(arguments.file.as_ref().and_then(|file| file.at))?;
    let writer = writer(arguments.to, arguments.cut)?;
    let mut input = Input::find(arguments.file.as_deref())?;
    if arguments.mappings || arguments.what.counts_mappings() {
        input = input.into_mappings()?;
    }
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
    let profile = profile::profile(question, &holds)?;
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

/// Writes a profile in one format.
type WriteProfile = Box<dyn Fn(&Profile, &mut dyn Write) -> io::Result<()>>;

/// The writer of one format.
enum Writer {
    /// Writes a profile; `Holds` says which data of it the format can hold.
    Profile(WriteProfile, Holds),
    /// Writes events, one by one.
    Events(events::EventFormat),
}

/// Returns the writer of a format.
fn writer(format: ExportFormat, cut: Cut) -> Result<Writer> {
    let chrome = |heaps| Box::new(move |profile: &Profile, out: &mut dyn Write| chrome::write(profile, out, heaps));
    let (write, holds): (WriteProfile, Holds) = match format {
        ExportFormat::Heaptrack => return Ok(Writer::Events(events::EventFormat::Heaptrack)),
        ExportFormat::Firefox => return Ok(Writer::Events(events::EventFormat::Firefox)),
        ExportFormat::Massif => (Box::new(massif::write), massif::HOLDS),
        ExportFormat::Pprof => (Box::new(pprof::write), pprof::HOLDS),
        ExportFormat::Dhat => (Box::new(dhat::write), dhat::HOLDS),
        ExportFormat::Collapsed => (Box::new(collapsed::write), collapsed::HOLDS),
        ExportFormat::Flamegraph => (Box::new(flame_graph::write), collapsed::HOLDS),
        ExportFormat::Speedscope => (Box::new(speedscope::write), speedscope::HOLDS),
        ExportFormat::Heapprofile => (Box::new(heapprofile::write), heapprofile::HOLDS),
        ExportFormat::Gperftools => (Box::new(gperftools::write), gperftools::HOLDS),
        ExportFormat::Chrome => (chrome(HeapFormat::Entries(cut)), chrome::HOLDS),
        ExportFormat::ChromeV2 => (chrome(HeapFormat::Aggregated), chrome::HOLDS),
        ExportFormat::Perfetto => (Box::new(perfetto::write), perfetto::HOLDS),
        ExportFormat::Otlp => (Box::new(otlp::write), otlp::HOLDS),
        #[cfg(feature = "parquet")]
        ExportFormat::Parquet => {
            (Box::new(heapledger_profile_formats::parquet::write), heapledger_profile_formats::parquet::HOLDS)
        }
        #[cfg(not(feature = "parquet"))]
        ExportFormat::Parquet => {
            let what = "this heapledger cannot write Parquet: it was built without the feature `parquet`";
            let hint = "cargo install --locked --path crates/tool/cli --features parquet";
            return Err(Failure::new(Exit::Usage, what).hint(hint));
        }
    };
    Ok(Writer::Profile(write, holds))
}
