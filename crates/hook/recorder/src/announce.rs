//! Announces what events refer to: nodes, modules, names and stamps.

use core::ptr;
use core::sync::atomic::Ordering;

use heapledger_core::context::Name;
use heapledger_core::stamp::Stamp;
use heapledger_core::{NodeKind, StackId, arch, sys};
use heapledger_unwind::modules::Module;
use heapledger_unwind::nodes::NODE_LENGTH;
use heapledger_unwind::{Sink, supplied};
use heapledger_wire::event::{self, Extended, Packed, WORDS_MAX};
use heapledger_wire::publish::{Producer, WriteError};

use crate::block::EventWriter;
use crate::emit::write_extended;
use crate::process::Process;
use crate::{connect, session};

/// The number of nodes after which the tree takes another page.
const NODES_PER_PAGE: u64 = 4096 / NODE_LENGTH;

/// Announces nodes and modules in the thread's ring.
impl Sink for EventWriter {
    #[inline(never)]
    fn node(&mut self, id: StackId, parent: StackId, kind: NodeKind, address: u64) -> bool {
        if self.announcement_failed {
            return false;
        }
        let (producer, words) = (self.producer(), event::node(id, parent, kind, address));
        if !producer.write_unstamped_fast(words) {
            let written = producer.write(session::page(), session::is_gone, &words);
            self.announced(written);
        }
        if u64::from(id.0) % NODES_PER_PAGE == 0
            && let Some(process) = Process::get()
        {
            process.report_memory();
        }
        !self.announcement_failed
    }

    #[cold]
    #[inline(never)]
    fn folded(&mut self) {
        let position = self.producer().position();
        if self.note_folded(position)
            && let Some(counters) = Process::get().and_then(Process::counters)
        {
            counters.stacks_folded.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn text(&mut self, name: &'static Name) {
        let bytes = name.bytes();
        // As in `module`.
        let (words, packed) = self.words.split_at_mut(WORDS_MAX / 2);
        let Some(count) = event::pack(bytes, packed) else { return };
        // SAFETY: `as_ref` requires null or a live `Category`: by the contract of `Name`,
        // everything that it refers to is static. The only field that changes is atomic.
        let category = unsafe { name.category.as_ref() };
        let event = Extended::Text {
            address: ptr::from_ref(name) as u64,
            flags: name.flags,
            category: category.map_or(0, |category| ptr::from_ref(&category.name) as u64),
            text: Packed { words: packed.get(..count).unwrap_or(&[]), length: bytes.len() },
        };
        // SAFETY: *ring invariant* (`EventWriter`): the block is entered, so the producer has been
        // written. Not through `producer()`, since `words` is a part of this writer.
        let producer = unsafe { self.producer.assume_init_mut() };
        let written = write_extended(producer, arch::ticks(), &event, words);
        self.announced(written);
    }

    #[cold]
    #[inline(never)]
    fn module(&mut self, module: &Module<'_>) -> bool {
        if self.announcement_failed {
            return false;
        }
        // The upper half of the buffer holds the packed bytes while the event is put together in
        // the lower.
        let (words, packed) = self.words.split_at_mut(WORDS_MAX / 2 + 16);
        let (build_words, path_words) = packed.split_at_mut(8);
        let build_id = module.build_id.get(..module.build_id.len().min(64)).unwrap_or(&[]);
        let path = module.path.get(..module.path.len().min(3_800)).unwrap_or(&[]);
        let (Some(build_count), Some(path_count)) = (event::pack(build_id, build_words), event::pack(path, path_words))
        else {
            return true;
        };
        let event = Extended::Module {
            start: module.start,
            end: module.end,
            bias: module.bias,
            epoch: module.epoch,
            build_id: Packed { words: build_words.get(..build_count).unwrap_or(&[]), length: build_id.len() },
            path: Packed { words: path_words.get(..path_count).unwrap_or(&[]), length: path.len() },
        };
        // SAFETY: *ring invariant* (`EventWriter`): the block is entered, so the producer has been
        // written. Not through `producer()`, since `words` is a part of this writer.
        let producer = unsafe { self.producer.assume_init_mut() };
        let written = write_extended(producer, arch::ticks(), &event, words);
        self.announced(written);
        !self.announcement_failed
    }

    #[cold]
    #[inline(never)]
    fn supply_modules(&mut self, address: u64) -> bool {
        let Some((table, length)) = connect::request_modules(session::address(), session::known_page(), address) else {
            return false;
        };
        // SAFETY: `supply` requires whole pages that nobody writes to, and that are its own if it
        // takes them: just mapped from a file that the tool has sealed, and not used here.
        let is_taken = unsafe { supplied::supply(table, length) };
        if !is_taken {
            // SAFETY: `unmap` requires memory of `map_file` to which nothing refers: see above.
            unsafe { sys::unmap(table.as_ptr(), length) };
        }
        is_taken
    }
}

impl EventWriter {
    fn producer(&mut self) -> &mut Producer {
        // SAFETY: *ring invariant* (`EventWriter`): an event writer writes only while its block is
        // entered, so the producer has been written.
        unsafe { self.producer.assume_init_mut() }
    }

    /// Notes whether an announcement was written. If not, no event may refer to it.
    fn announced(&mut self, written: Result<(), WriteError>) {
        match written {
            Ok(()) => {}
            Err(WriteError::NoSpace) => self.announcement_failed = true,
            Err(WriteError::Disconnected) => session::turn_off(),
        }
    }

    /// Announces a stamp's text.
    #[cold]
    #[inline(never)]
    pub(crate) fn announce_stamp(&mut self, ticks: u64, stamp: &'static Stamp) -> Result<(), WriteError> {
        // As in `module`.
        let (words, packed) = self.words.split_at_mut(WORDS_MAX / 2);
        let text = event::pack_truncated(stamp.text(), packed);
        let event = Extended::Text { address: ptr::from_ref(stamp) as u64, flags: 0, category: 0, text };
        // SAFETY: *ring invariant* (`EventWriter`): the block is entered, so the producer has been
        // written. Not through `producer()`, since `words` is a part of this writer.
        write_extended(unsafe { self.producer.assume_init_mut() }, ticks, &event, words)?;
        stamp.mark_announced();
        Ok(())
    }
}
