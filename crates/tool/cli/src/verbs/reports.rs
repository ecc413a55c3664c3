//! `heapledger reports`: the memory reports that programs make about themselves.

use std::path::Path;

use heapledger_report_format::about::{AboutOptions, Filter, Page};
use heapledger_report_format::{Difference, Reports, escape};

use crate::args::{
    DiffReports, MergeReports, Privacy, ReportsAction, ReportsFormat, ReportsTarget, ReportsView, SaveReports,
    ShowReports,
};
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::json::document::Form;
use crate::messages::warn;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::page;

pub(crate) mod json;
mod source;
mod url;

pub(crate) fn run(action: &ReportsAction, out: &mut Output) -> Result<()> {
    match action {
        ReportsAction::Show(arguments) => show(arguments, out),
        ReportsAction::Diff(arguments) => diff(arguments, out),
        ReportsAction::Merge(arguments) => merge(arguments, out),
        ReportsAction::Save(arguments) => save(arguments, out),
    }
}

fn show(arguments: &ShowReports, out: &mut Output) -> Result<()> {
    if arguments.page {
        return show_page(arguments);
    }
    let options = options(&arguments.view)?;
    let reports = read_all(&arguments.sources, &arguments.privacy)?;
    print(&Page::of(&reports, &options), &arguments.view, out)
}

fn show_page(arguments: &ShowReports) -> Result<()> {
    let name = |source: &str| source.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    let named = |source: &String| Ok((name(source), read(source, &arguments.privacy)?));
    let sets = arguments.sources.iter().map(named).collect::<Result<Vec<_>>>()?;
    let title = match &sets[..] {
        [(name, _)] => name.clone(),
        _ => format!("{} sources", sets.len()),
    };
    page::serve(title, |page| sets.into_iter().for_each(|(name, reports)| page.load(name, reports)))
}

fn diff(arguments: &DiffReports, out: &mut Output) -> Result<()> {
    let options = options(&arguments.view)?;
    let before = read(&arguments.before, &arguments.privacy)?;
    let after = read(&arguments.after, &arguments.privacy)?;
    let difference = Difference::between(&before, &after).map_err(|error| {
        let what = format_args!("cannot compare `{}` with `{}`", arguments.after, arguments.before);
        Failure::caused(Exit::Unreadable, what, error)
    })?;
    print(&Page::of_difference(&difference, &options), &arguments.view, out)
}

fn merge(arguments: &MergeReports, out: &mut Output) -> Result<()> {
    let target = begin(&arguments.target, &arguments.sources)?;
    write(&read_all(&arguments.sources, &arguments.privacy)?, &arguments.target, target, out)
}

fn save(arguments: &SaveReports, out: &mut Output) -> Result<()> {
    let target = begin(&arguments.target, std::slice::from_ref(&arguments.source))?;
    write(&read(&arguments.source, &arguments.privacy)?, &arguments.target, target, out)
}

fn options(view: &ReportsView) -> Result<AboutOptions> {
    let filter = match &view.filter {
        Some(pattern) if view.regex => Some(Filter::pattern(pattern).map_err(|error| {
            Failure::caused(Exit::Usage, format_args!("`{pattern}` is no regular expression"), error)
        })?),
        text => text.clone().map(Filter::text),
    };
    Ok(AboutOptions { verbose: view.verbose, filter })
}

fn read_all(sources: &[String], privacy: &Privacy) -> Result<Reports> {
    let sets = sources.iter().map(|source| read(source, privacy)).collect::<Result<Vec<_>>>()?;
    Ok(Reports::merge(sets))
}

fn read(source: &str, privacy: &Privacy) -> Result<Reports> {
    let reports = source::read(source, privacy.anonymize)?;
    Ok(if privacy.anonymize { reports.anonymized() } else { reports })
}

fn print(page: &Page, view: &ReportsView, out: &mut Output) -> Result<()> {
    for section in &page.sections {
        for path in &section.left_out {
            let process = &section.process;
            let what = format_args!("`{path}` of {process} is not shown, as in Firefox: another path begins with it");
            warn(Code::LeftOut, escape(&what.to_string()));
        }
    }
    match view.json {
        true => out.document(&json::PageJson::from(page), Form::Json),
        false => Ok(out.page(page)?),
    }
}

/// Begins the output file, before programs are asked for its contents.
fn begin(target: &ReportsTarget, sources: &[String]) -> Result<NewFile> {
    let sources: Vec<&Path> = sources.iter().map(Path::new).collect();
    NewFile::create(&target.output, target.force, &sources)
}

fn write(reports: &Reports, arguments: &ReportsTarget, target: NewFile, out: &mut Output) -> Result<()> {
    let bytes = match arguments.to.unwrap_or_else(|| format_of(&arguments.output)) {
        ReportsFormat::Gzip => reports.to_gzip(),
        ReportsFormat::Json => reports.to_json().into_bytes(),
        ReportsFormat::Openmetrics => reports.to_openmetrics().into_bytes(),
    };
    target.write(out.stream(), |file| file.write_all(&bytes))
}

fn format_of(path: &Path) -> ReportsFormat {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => ReportsFormat::Json,
        Some("txt" | "prom") => ReportsFormat::Openmetrics,
        _ => ReportsFormat::Gzip,
    }
}
