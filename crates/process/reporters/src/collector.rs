//! The collector that reporters are given: they report their measurements to it.

use std::cell::RefCell;
use std::fmt::{self, Display};
use std::thread;

use heapledger_annotate::untracked;
use heapledger_core::Bytes;
use heapledger_measure::{HeapSize, Meter};
use heapledger_report_format::{Kind, Unit};

use crate::abi::{RawReport, RetainedSink, Text, flag};
use crate::kept_names::keep_name;
use crate::path::{RenderedPath, part};

/// The receiver of a reporter's measurements.
///
/// Paths are relative to that of the reporter; an empty one is the reporter's own, and one that
/// begins with `/` stands for itself. Names in them are separated by `/`: what may have a `/` in
/// it, changes from run to run or is private, goes through [`part`](crate::part),
/// [`variable`](crate::variable) or [`private`](crate::private):
///
/// ```
/// # use heapledger_reporters as reports;
/// use heapledger_core::Bytes;
/// use reports::{Collector, part, variable};
///
/// fn report(collector: &mut Collector) {
///     for (id, file) in [(17, "/etc/hosts")] {
///         collector.heap(format_args!("{} (id={})", part(file), variable(id)), Bytes(4096), "The file's buffer.");
///     }
/// }
/// ```
///
/// Descriptions are whole sentences. Reporting the same path twice adds the amounts.
pub struct Collector {
    /// Held, since a reporter can keep its collector: it may exchange it for another one.
    sink: RetainedSink,
    /// As it was registered, with marks.
    base: String,
    path: String,
    meter: RefCell<Meter>,
}

impl Collector {
    pub(crate) fn new(sink: RetainedSink, path: &str) -> Collector {
        untracked::scope(|| {
            let is_marking = sink.flags & flag::MARK != 0;
            let name = RenderedPath::new(path, sink.flags & flag::ANONYMOUS != 0).text;
            let meter = if is_marking { Meter::marking(keep_name(&name)) } else { Meter::new() };
            Collector { sink, base: path.to_owned(), path: name, meter: RefCell::new(meter) }
        })
    }

    /// Reports bytes: below `explicit/` they are in blocks of the allocator; elsewhere their kind
    /// does not matter.
    pub fn bytes(&self, path: impl Display, amount: Bytes, description: impl Display) {
        let kind = |path: &str| if path.starts_with("explicit/") { Kind::Heap } else { Kind::Other };
        self.send(path, kind, Unit::Bytes, signed(amount.0), description);
    }

    /// Reports bytes in blocks of the allocator.
    pub fn heap(&self, path: impl Display, amount: Bytes, description: impl Display) {
        self.send(path, |_| Kind::Heap, Unit::Bytes, signed(amount.0), description);
    }

    /// Reports bytes that the program has mapped itself, not by way of its allocator.
    pub fn non_heap(&self, path: impl Display, amount: Bytes, description: impl Display) {
        self.send(path, |_| Kind::NonHeap, Unit::Bytes, signed(amount.0), description);
    }

    /// Reports a number of things that come and go. Not below `explicit/`.
    pub fn count(&self, path: impl Display, amount: u64, description: impl Display) {
        self.send(path, |_| Kind::Other, Unit::Count, signed(amount), description);
    }

    /// Reports a number of events so far, which never decreases. Not below `explicit/`.
    pub fn cumulative(&self, path: impl Display, amount: u64, description: impl Display) {
        self.send(path, |_| Kind::Other, Unit::CountCumulative, signed(amount), description);
    }

    /// Reports a percentage, kept to hundredths; it may be above 100. Not below `explicit/`.
    pub fn percentage(&self, path: impl Display, percent: f64, description: impl Display) {
        // Saturates; what is no number is 0.
        let hundredths = (percent * 100.0).round() as i64;
        self.send(path, |_| Kind::Other, Unit::Percentage, hundredths, description);
    }

    /// Reports any measurement.
    pub fn report(&self, path: impl Display, kind: Kind, unit: Unit, amount: i64, description: impl Display) {
        self.send(path, |_| kind, unit, amount, description);
    }

    /// Returns the bytes that a value owns, without the value itself: see [`HeapSize`]. One meter
    /// measures all of a collector's values, so memory that two of them share is counted once.
    pub fn measure<T: HeapSize + ?Sized>(&self, value: &T) -> Bytes {
        value.heap_size(&mut self.meter.borrow_mut())
    }

    /// Returns the meter. It marks blocks under the reporter's name if the collection marks.
    pub fn meter(&mut self) -> &mut Meter {
        self.meter.get_mut()
    }

    /// True if private data is left out. [`private`](crate::private) sees to that; this is for data
    /// that takes effort to find out.
    pub fn is_anonymous(&self) -> bool {
        self.sink.flags & flag::ANONYMOUS != 0
    }

    /// True if the reports go into a memory dump.
    #[doc(hidden)]
    pub fn is_for_dump(&self) -> bool {
        self.sink.flags & flag::DUMP != 0
    }

    /// Returns the path of the reporter, which is also its name.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn send(
        &self,
        path: impl Display,
        kind: impl FnOnce(&str) -> Kind,
        unit: Unit,
        amount: i64,
        description: impl Display,
    ) {
        untracked::scope(|| {
            let path = RenderedPath::join(&self.base, path, self.is_anonymous());
            let description = RenderedPath::new(description, self.is_anonymous());
            let report = RawReport {
                path: Text::new(&path.text),
                stable_path: Text::new(path.stable.as_deref().unwrap_or_default()),
                description: Text::new(&description.text),
                kind: kind(&path.text) as u32,
                unit: unit as u32,
                amount,
            };
            // SAFETY: `report` requires a sink that is held, and a report that stays as it is
            // during the call. The sink is held until it is dropped; the report is a local, and so
            // are its texts.
            unsafe { (self.sink.report)(self.sink.context, &raw const report) };
        });
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let computed = self.meter.get_mut().computed_bytes();
        if computed.0 > 0 && !thread::panicking() {
            self.bytes(
                format_args!("/heapledger-computed/{}", part(&self.base)),
                computed,
                format_args!(
                    "What of the sizes reported by {} was computed, since nobody could be asked: slop is not in it.",
                    self.path
                ),
            );
        }
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Collector").field("path", &self.path).field("flags", &self.sink.flags).finish()
    }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// An answer that is still to come: see [`register_async`](crate::register_async). The reporter has
/// answered when all are dropped; what comes after the collection's deadline is not heard any more.
pub struct Pending {
    sink: RetainedSink,
    path: String,
}

impl Pending {
    pub(crate) fn new(sink: RetainedSink, path: &str) -> Pending {
        Pending { sink, path: untracked::scope(|| path.to_owned()) }
    }

    /// Makes measurements, now and in this thread. May be called several times.
    pub fn collect(&self, report: impl FnOnce(&mut Collector)) {
        report(&mut Collector::new(self.sink.clone(), &self.path));
    }
}

impl Clone for Pending {
    fn clone(&self) -> Pending {
        Pending::new(self.sink.clone(), &self.path)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if thread::panicking() {
            // SAFETY: `fail` requires a sink that is held, and a text that stays as it is during
            // the call. The sink is held until it is dropped; the text is static.
            unsafe { (self.sink.fail)(self.sink.context, Text::new("it panicked in another thread")) };
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Pending").field("path", &self.path).finish()
    }
}
