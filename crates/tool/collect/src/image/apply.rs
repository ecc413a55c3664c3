//! Applies the events of a ring to an image.

use heapledger_core::sample::Rate;
use heapledger_core::{Api, Bytes, GENERATED_CODE};
use heapledger_ledger::Key;
use heapledger_recording::{Annotation, EventKind, Extras, Mapping, Mark, ModuleId, Record, Time};
use heapledger_wire::event::{Corrupt, Event, Extended, ReallocOutcome, UsableCall, code};

use super::Image;
use super::blocks::NewBlock;
use super::mappings::Call;
use super::threads::RingOwner;
use crate::departures::Announced;
use crate::forks::ForkPoint;
use crate::nodes::NewNode;
use crate::session_state::Shared;

impl Image {
    /// Applies an event. `Err` means that no working recorder would have written it.
    #[inline]
    pub(crate) fn apply(
        &mut self,
        shared: &mut Shared,
        ring_owner: &mut RingOwner,
        time: Time,
        event: &Event<'_>,
    ) -> Result<(), Corrupt> {
        match *event {
            Event::Free { address } => {
                let header = self.threads.header(ring_owner, time);
                self.free(shared, header, Api::Free, address, &Extras::NONE);
            }
            Event::Malloc { address, size, stack } => {
                let header = self.threads.header(ring_owner, time);
                self.allocate(shared, header, Api::Malloc, NewBlock { address, size, stack }, &Extras::NONE);
            }
            Event::Calloc { address, size, stack, count, .. } => {
                let header = self.threads.header(ring_owner, time);
                let extras = Extras { count: Some(u64::from(count)), ..Extras::NONE };
                self.allocate(shared, header, Api::Calloc, NewBlock { address, size, stack }, &extras);
            }
            Event::ReallocBegin { address } => {
                let header = self.threads.header(ring_owner, time);
                self.begin_realloc(shared, header, address);
            }
            Event::ReallocEnd { address, size, stack } => {
                let header = self.threads.header(ring_owner, time);
                self.finish_realloc(shared, header, Api::Realloc, NewBlock { address, size, stack }, &Extras::NONE);
            }
            Event::WithUsable { call, address, size, stack, count, usable } => {
                let header = self.threads.header(ring_owner, time);
                let new = NewBlock { address, size, stack };
                let count = (call == UsableCall::Calloc).then_some(u64::from(count));
                let extras = Extras { count, usable: Some(Bytes(usable)), ..Extras::NONE };
                match call {
                    UsableCall::Malloc | UsableCall::Calloc => {
                        self.allocate(shared, header, call.api(), new, &extras);
                    }
                    UsableCall::ReallocEnd => self.finish_realloc(shared, header, call.api(), new, &extras),
                }
            }
            Event::Node { id, parent, kind, address } => {
                let address = if kind.has_text() { self.text(shared, address) } else { address };
                self.add_node(shared, NewNode { id, parent, kind, address })?;
            }
            Event::Nothing => {}
            Event::Extended { code, payload } => {
                if let Some(event) = Extended::parse(code, payload)? {
                    self.apply_extended(shared, ring_owner, time, &event)?;
                }
            }
        }
        Ok(())
    }

    /// Applies an event about blocks in its long form, or any other event.
    #[cold]
    fn apply_extended(
        &mut self,
        shared: &mut Shared,
        ring_owner: &mut RingOwner,
        time: Time,
        event: &Extended<'_>,
    ) -> Result<(), Corrupt> {
        let given = |value: u64| (value != 0).then_some(value);
        match *event {
            Extended::Alloc { api, address, size, stack, alignment, count, usable, rate } => {
                let header = self.threads.sampled_header(ring_owner, time, rate);
                let (alignment, count, usable) = (given(alignment), given(count), given(usable).map(Bytes));
                let extras = Extras { alignment, count, usable, ..Extras::NONE };
                check_address(address)?;
                self.allocate(shared, header, api, NewBlock { address, size, stack }, &extras);
                if api == Api::PoolAlloc {
                    self.address_index.insert(Key(address), Bytes(size));
                }
            }
            Extended::Free { api, address, size, alignment } => {
                let header = self.threads.sampled_header(ring_owner, time, Rate::EXACT);
                let says_size = matches!(api, Api::FreeSized | Api::FreeAlignedSized);
                let declared_size = says_size.then_some(Bytes(size));
                let extras = Extras { alignment: given(alignment), declared_size, ..Extras::NONE };
                match api {
                    Api::PoolBack => self.back_pool(shared, header, Key(address), &extras),
                    Api::PoolReset => self.reset_pool(shared, header, Key(address).pool()),
                    _ => self.free(shared, header, api, address, &extras),
                }
            }
            Extended::Reattributed { address, stack } => {
                let header = self.threads.header(ring_owner, time);
                self.reattribute_block(shared, header, Key(address), stack);
            }
            Extended::Stamped { address, stamp } => {
                let header = self.threads.header(ring_owner, time);
                self.stamp(shared, header, address, stamp);
            }
            Extended::Ignored { address } => {
                let header = self.threads.header(ring_owner, time);
                self.ignore(shared, header, Key(address));
            }
            Extended::ReallocBegin { address, .. } => {
                let header = self.threads.header(ring_owner, time);
                self.begin_realloc(shared, header, address);
            }
            Extended::ReallocEnd { api, outcome, address, size, stack, count, usable, rate } => {
                let header = self.threads.sampled_header(ring_owner, time, rate);
                let extras = Extras { count: given(count), usable: given(usable).map(Bytes), ..Extras::NONE };
                match outcome {
                    ReallocOutcome::Returned => {
                        check_address(address)?;
                        self.finish_realloc(shared, header, api, NewBlock { address, size, stack }, &extras);
                    }
                    ReallocOutcome::Failed => {
                        self.cancel_pending(shared, header.thread);
                        self.fail(shared, header, api, EventKind::Failed { size: Bytes(size), stack }, &extras);
                    }
                    ReallocOutcome::Freed => self.finish_as_free(shared, header, api, &extras),
                }
            }
            Extended::Failed { api, size, stack, alignment, count } => {
                let header = self.threads.header(ring_owner, time);
                let extras = Extras { alignment: given(alignment), count: given(count), ..Extras::NONE };
                self.fail(shared, header, api, EventKind::Failed { size: Bytes(size), stack }, &extras);
            }
            _ => self.apply_other(shared, ring_owner, time, event),
        }
        Ok(())
    }

    /// Applies an event that changes no block: about threads, modules, texts, forks and other
    /// programs, marks of memory reporters, annotations.
    fn apply_other(&mut self, shared: &mut Shared, ring_owner: &mut RingOwner, time: Time, event: &Extended<'_>) {
        match *event {
            Extended::Marked { .. } => {
                let header = self.threads.header(ring_owner, time);
                self.add_mark(shared, header, event);
            }
            Extended::Unmarked { address, reporter } => {
                let header = self.threads.header(ring_owner, time);
                self.remove_mark(shared, header, address, reporter);
            }
            Extended::MarksCleared => self.push_mark(shared, time, &Mark::Cleared),
            Extended::MarksComplete => self.push_mark(shared, time, &Mark::Complete { time }),
            Extended::ThreadStart { thread, name } => {
                // A ring that was taken over from a thread that could not announce its end.
                if let Some(before) = ring_owner.thread {
                    self.end_thread(shared, before, time);
                }
                ring_owner.thread = Some(self.threads.start(thread, name, time));
            }
            Extended::ThreadName { name } => {
                let thread = self.threads.owner(ring_owner, time);
                self.threads.rename(thread, name);
            }
            Extended::ThreadEnd => {
                let thread = self.threads.owner(ring_owner, time);
                self.end_thread(shared, thread, time);
                ring_owner.thread = None;
            }
            Extended::OnBehalf { thread } => ring_owner.thread = Some(self.threads.known_or_new(thread, time)),
            Extended::Unsampled => {
                let thread = self.threads.owner(ring_owner, time);
                self.threads.note_unsampled(thread);
            }
            Extended::Fork { sequence } => {
                self.has_forked = true;
                // If there is not enough memory, the child gets the parent's state at the time when
                // it comes.
                if let Ok(ledger) = self.ledger.fork() {
                    let tree = self.tree.snapshot();
                    let mappings = self.fork_mappings();
                    shared.forks.add(ForkPoint { image: self.id, sequence, time, ledger, tree, mappings });
                }
            }
            Extended::Mapping { call, step, is_allocators, stack, address, length, arguments } => {
                let thread = self.threads.owner(ring_owner, time);
                let call = Call { time, thread, stack, call, step, is_allocators, address, length, arguments };
                self.change_mappings(&call, shared);
            }
            Extended::Module { .. } => self.map_module(shared, time, event),
            Extended::Exec { process, pid, reason, is_tight, since, path } => {
                if pid == process {
                    self.tree.generated.read_early(self.pid, process);
                }
                let (image, path) = (self.id, path.bytes().collect());
                shared.departures.announce(Announced { image, process, pid, reason, is_tight, since, time, path });
            }
            Extended::ExecFailed { pid } => {
                self.tree.generated.exec_failed(pid);
                shared.departures.exec_failed(self.id, pid);
            }
            Extended::Text { address, flags, category, text } => {
                let bytes = text.bytes().collect();
                self.tree.texts.set(&mut shared.texts, address, flags, category, bytes);
            }
            // Annotations of the recorder itself are few.
            Extended::Annotation { code, payload }
                if shared.keeps_events
                    || [code::STACK_MISMATCH, code::UNSEEN_LIBRARY, code::SANDBOX].contains(&code) =>
            {
                let thread = self.threads.owner(ring_owner, time);
                let payload = payload.iter().flat_map(|word| word.to_le_bytes()).collect();
                let annotation = Annotation { image: self.id, thread, time, code: u32::from(code), payload };
                self.chunks.annotate(shared, &annotation);
            }
            // An event of a newer protocol version. Both sides are built from one version, so this
            // does not happen.
            _ => {}
        }
    }

    /// Adds the mapping of a module, which may be one that stands for generated code.
    fn map_module(&mut self, shared: &mut Shared, time: Time, event: &Extended<'_>) {
        let Extended::Module { start, end, bias, epoch, build_id, path } = *event else { return };
        let build_id: Vec<u8> = build_id.bytes().collect();
        let path: Vec<u8> = path.bytes().collect();
        let (module, new) = if path == GENERATED_CODE {
            self.tree.generated.announced(self.pid);
            let known = self.tree.generated.module();
            let new = known.is_none().then(|| shared.modules.generated());
            let module = known.or(new.as_ref().map(|new| new.module)).unwrap_or(ModuleId::UNKNOWN);
            self.tree.generated.set_module(module);
            (module, new)
        } else {
            shared.modules.id(if path.is_empty() { &self.executable } else { &path }, &build_id)
        };
        let mapping = Mapping { image: self.id, module, start, end, bias, time };
        shared.records.extend(new.map(Record::Module));
        shared.records.push(Record::Mapping(mapping));
        self.tree.map(mapping, epoch);
    }
}

/// Refuses an address that no allocator returns, and for which the register has no room.
fn check_address(address: u64) -> Result<(), Corrupt> {
    if address == u64::MAX { Err(Corrupt) } else { Ok(()) }
}
