//! The messages of the file as protocol buffers: field numbers, and the conversion of each field to
//! and from [`messages`].

use heapledger_core::allocator::{AllocatorKind, AllocatorVersion};
use heapledger_core::sample::Rate;
use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId};

use crate::head;
use crate::ids::{self, ImageId, ModuleId, TextId, Time};
use crate::messages::{self, Clock, ImageEndReason, ImageOrigin};

/// Defines messages. Each line is `number name [wire type]: type`, as in FORMAT.md.
macro_rules! messages {
    ($($of:ident :: $name:ident { $($tag:literal $field:ident [$($wire:tt)*]: $type:ty,)* })*) => {$(
        #[derive(Clone, PartialEq, prost::Message)]
        pub(crate) struct $name {
            $(#[prost($($wire)*, tag = $tag)] pub(crate) $field: $type,)*
        }

        impl From<$of::$name> for $name {
            fn from(from: $of::$name) -> $name {
                $name { $($field: from.$field.into_wire(),)* }
            }
        }

        impl From<$name> for $of::$name {
            fn from(from: $name) -> $of::$name {
                $of::$name { $($field: Field::from_wire(from.$field),)* }
            }
        }
    )*};
}

messages! {
    messages::Session {
        1 tool_version [string]: String,
        2 start_unix_ns [uint64]: u64,
        3 command [bytes = "vec", repeated]: Vec<Vec<u8>>,
        4 directory [bytes = "vec"]: Vec<u8>,
        5 page_size [uint64]: u64,
        6 options [string]: String,
        7 clock [uint32]: u32,
        8 begins [uint64]: u64,
        9 segment [uint32]: u32,
        10 totals_only [bool]: bool,
        11 samples [bool]: bool,
    }
    messages::ImageStart {
        1 image [uint32]: u32,
        2 pid [uint32]: u32,
        3 parent_pid [uint32]: u32,
        4 parent_image [uint32, optional]: Option<u32>,
        5 how [uint32]: u32,
        6 fork_node_base [uint32]: u32,
        7 inherited_blocks [uint64]: u64,
        8 inherited_bytes [uint64]: u64,
        9 inherited_exact [bool]: bool,
        10 time [uint64]: u64,
        11 executable [bytes = "vec"]: Vec<u8>,
        12 argv [bytes = "vec", repeated]: Vec<Vec<u8>>,
        13 carried [message, optional]: Option<Live>,
        14 allocator [uint32]: u32,
        15 allocator_version [uint32]: u32,
        16 age_ns [uint64]: u64,
    }
    messages::ImageEnd {
        1 image [uint32]: u32,
        2 time [uint64]: u64,
        3 reason [uint32]: u32,
        4 exit [message, optional]: Option<ExitStatus>,
    }
    messages::Module {
        1 module [uint32]: u32,
        2 path [bytes = "vec"]: Vec<u8>,
        3 build_id [bytes = "vec"]: Vec<u8>,
    }
    messages::Mapping {
        1 image [uint32]: u32,
        2 module [uint32]: u32,
        3 start [uint64]: u64,
        4 end [uint64]: u64,
        5 bias [uint64]: u64,
        6 time [uint64]: u64,
    }
    messages::Thread {
        1 image [uint32]: u32,
        2 thread [uint32]: u32,
        3 tid [uint32]: u32,
        4 name [bytes = "vec"]: Vec<u8>,
        5 start [uint64]: u64,
        6 end [uint64, optional]: Option<u64>,
    }
    messages::ImageCounts {
        1 image [uint32]: u32,
        2 counts [message, optional]: Option<Counts>,
    }
    messages::ProcessCounts {
        1 first_image [uint32]: u32,
        2 pid [uint32]: u32,
        3 counts [message, optional]: Option<Counts>,
    }
    messages::Pause {
        1 from [uint64]: u64,
        2 until [uint64, optional]: Option<u64>,
        3 is_stall [bool]: bool,
    }
    messages::Departure {
        1 time [uint64]: u64,
        2 image [uint32]: u32,
        3 pid [uint32]: u32,
        4 reason [uint32]: u32,
        5 path [bytes = "vec"]: Vec<u8>,
        6 is_fork [bool]: bool,
    }
    messages::Text {
        1 text [uint32]: u32,
        2 bytes [bytes = "vec"]: Vec<u8>,
        3 is_task [bool]: bool,
        4 category [bytes = "vec"]: Vec<u8>,
    }
    messages::ImportedLocation {
        1 module [uint32]: u32,
        2 offset [uint64]: u64,
        3 functions [bytes = "vec", repeated]: Vec<Vec<u8>>,
    }
    messages::Counts {
        1 allocations [uint64]: u64,
        2 reallocations [uint64]: u64,
        3 frees [uint64]: u64,
        4 failed [uint64]: u64,
        5 bytes_allocated [uint64]: u64,
        6 bytes_live_max [uint64]: u64,
        7 bytes_live_max_time [uint64]: u64,
        8 blocks_at_bytes_max [uint64]: u64,
        9 blocks_live_max [uint64]: u64,
        10 bytes_live_end [uint64]: u64,
        11 blocks_live_end [uint64]: u64,
        12 temporary_allocations [uint64]: u64,
        13 frees_unknown [uint64]: u64,
        14 frees_inherited [uint64]: u64,
        15 bytes_inherited_live_end [uint64]: u64,
        16 blocks_inherited_live_end [uint64]: u64,
        17 events_lost [uint64]: u64,
        18 events_late [uint64]: u64,
        19 threads [uint64]: u64,
        20 events_lost_full [uint64]: u64,
        21 events_lost_nested [uint64]: u64,
        22 events_lost_no_ring [uint64]: u64,
        23 events_lost_unreadable [uint64]: u64,
        24 frees_paused [uint64]: u64,
        25 stacks [message, optional]: Option<StackCounts>,
        26 events_lost_pools [uint64]: u64,
        27 stamps_unknown [uint64]: u64,
        28 errors [message, optional]: Option<CountErrors>,
        29 frees_missed [uint64]: u64,
        30 events_reordered [uint64]: u64,
    }
    messages::CountErrors {
        1 allocated [message, optional]: Option<Live>,
        2 live_end [message, optional]: Option<Live>,
        3 live_at_peak [message, optional]: Option<Live>,
    }
    messages::Sampling {
        1 from [uint64]: u64,
        2 rate [uint32]: u32,
    }
    messages::StackCounts {
        1 truncated [uint64]: u64,
        2 dropped [uint64]: u64,
        3 verified [uint64]: u64,
        4 mismatched [uint64]: u64,
        5 unasked [uint64]: u64,
        6 outlasting [uint64]: u64,
        7 missing [uint64]: u64,
        8 folded [uint64]: u64,
        9 unproven [uint64]: u64,
    }
    messages::Footer {
        1 time [uint64]: u64,
        2 complete [bool]: bool,
        3 counts [message, optional]: Option<Counts>,
        4 exit [message, optional]: Option<ExitStatus>,
        5 costs [message, optional]: Option<RunCosts>,
        6 peak_least [message, optional]: Option<Live>,
    }
    messages::RunCosts {
        1 collector_cpu_ns [uint64, optional]: Option<u64>,
        2 collector_rss_max [uint64, optional]: Option<u64>,
        3 ring_bytes [uint64, optional]: Option<u64>,
        4 target_private_bytes [uint64, optional]: Option<u64>,
        5 hook_ns [uint64, optional]: Option<u64>,
        6 program_cpu_ns [uint64, optional]: Option<u64>,
        7 program_wall_ns [uint64, optional]: Option<u64>,
    }
    messages::Annotation {
        1 image [uint32]: u32,
        2 thread [uint32]: u32,
        3 time [uint64]: u64,
        4 code [uint32]: u32,
        5 payload [bytes = "vec"]: Vec<u8>,
    }
    ids::Live {
        1 bytes [uint64]: u64,
        2 blocks [uint64]: u64,
    }
    head::ChunkHead {
        1 image [uint32, optional]: Option<u32>,
        2 rows [uint32]: u32,
        3 time_first [uint64]: u64,
        4 time_last [uint64]: u64,
        5 serial_first [uint64]: u64,
        6 serials [uint32]: u32,
        7 live_before [message, optional]: Option<Live>,
        8 live_after [message, optional]: Option<Live>,
        9 bytes_live_max [uint64]: u64,
        10 tick_ns [uint32]: u32,
        11 part [uint32]: u32,
        12 parts [uint32]: u32,
        13 counts [message, optional]: Option<Counts>,
        14 moves [uint32]: u32,
        15 marks [uint32]: u32,
    }
}

/// A record of a metadata chunk. A kind that this version does not know reads as `None`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Record {
    #[prost(oneof = "RecordKind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13")]
    pub(crate) kind: Option<RecordKind>,
}

macro_rules! record_kinds {
    ($($tag:literal $name:ident,)*) => {
        #[derive(Clone, PartialEq, prost::Oneof)]
        pub(crate) enum RecordKind {
            $(#[prost(message, tag = $tag)] $name($name),)*
        }

        impl From<messages::Record> for Record {
            fn from(from: messages::Record) -> Record {
                Record { kind: Some(match from { $(messages::Record::$name(from) => RecordKind::$name(from.into()),)* }) }
            }
        }

        impl Record {
            pub(crate) fn known(self) -> Option<messages::Record> {
                Some(match self.kind? { $(RecordKind::$name(from) => messages::Record::$name(from.into()),)* })
            }
        }
    };
}

record_kinds! {
    1 Session,
    2 ImageStart,
    3 ImageEnd,
    4 Module,
    5 Mapping,
    6 Thread,
    7 ImageCounts,
    8 ProcessCounts,
    9 Pause,
    10 Text,
    11 Sampling,
    12 ImportedLocation,
    13 Departure,
}

/// The exit status of a process: one of the two.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExitStatus {
    #[prost(sint32, optional, tag = "1")]
    code: Option<i32>,
    #[prost(sint32, optional, tag = "2")]
    signal: Option<i32>,
}

/// One chunk in the index. Chunks lie back to back, so lengths give their offsets.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct IndexEntry {
    #[prost(uint32, tag = "1")]
    pub(crate) length: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) kind: u32,
    #[prost(message, optional, tag = "3")]
    pub(crate) head: Option<ChunkHead>,
}

/// The conversion of a field of a message to the wire format, and back. A number without a meaning
/// reads as the field's default, so nothing here fails.
trait Field<Wire> {
    fn into_wire(self) -> Wire;
    fn from_wire(wire: Wire) -> Self;
}

macro_rules! same_on_the_wire {
    ($($type:ty),*) => {$(
        impl Field<$type> for $type {
            fn into_wire(self) -> $type {
                self
            }
            fn from_wire(wire: $type) -> $type {
                wire
            }
        }
    )*};
}

same_on_the_wire!(u64, u32, bool, String, Vec<u8>, Vec<Vec<u8>>);

macro_rules! newtypes {
    ($($type:ident($inner:ty)),*) => {$(
        impl Field<$inner> for $type {
            fn into_wire(self) -> $inner {
                self.0
            }
            fn from_wire(wire: $inner) -> $type {
                $type(wire)
            }
        }
    )*};
}

newtypes!(
    Bytes(u64),
    Blocks(u64),
    Serial(u64),
    Time(u64),
    ThreadId(u32),
    StackId(u32),
    ImageId(u32),
    ModuleId(u32),
    TextId(u32),
    AllocatorVersion(u32)
);

impl Field<u32> for AllocatorKind {
    fn into_wire(self) -> u32 {
        self as u32
    }
    fn from_wire(wire: u32) -> AllocatorKind {
        AllocatorKind::from_number(wire)
    }
}

impl Field<u32> for Rate {
    fn into_wire(self) -> u32 {
        self.logarithm().into()
    }
    fn from_wire(wire: u32) -> Rate {
        Rate::from_logarithm(wire.into())
    }
}

impl<Wire, T: Field<Wire>> Field<Option<Wire>> for Option<T> {
    fn into_wire(self) -> Option<Wire> {
        self.map(T::into_wire)
    }
    fn from_wire(wire: Option<Wire>) -> Option<T> {
        wire.map(T::from_wire)
    }
}

macro_rules! nested {
    ($($of:ident :: $name:ident),*) => {$(
        // A nested message that is always written; all defaults if the file has none.
        impl Field<Option<$name>> for $of::$name {
            fn into_wire(self) -> Option<$name> {
                Some(self.into())
            }
            fn from_wire(wire: Option<$name>) -> $of::$name {
                wire.unwrap_or_default().into()
            }
        }
    )*};
}

nested!(messages::Counts, messages::StackCounts, messages::RunCosts, ids::Live);

macro_rules! optional_nested {
    ($($of:ident :: $name:ident),*) => {$(
        impl Field<$name> for $of::$name {
            fn into_wire(self) -> $name {
                self.into()
            }
            fn from_wire(wire: $name) -> $of::$name {
                wire.into()
            }
        }
    )*};
}

optional_nested!(messages::Counts, messages::CountErrors, ids::Live);

impl Field<Option<ExitStatus>> for Option<messages::ExitStatus> {
    fn into_wire(self) -> Option<ExitStatus> {
        self.map(|status| match status {
            messages::ExitStatus::Code(code) => ExitStatus { code: Some(code), signal: None },
            messages::ExitStatus::Signal(signal) => ExitStatus { code: None, signal: Some(signal) },
        })
    }
    fn from_wire(wire: Option<ExitStatus>) -> Option<messages::ExitStatus> {
        let ExitStatus { code, signal } = wire?;
        signal.map(messages::ExitStatus::Signal).or(code.map(messages::ExitStatus::Code))
    }
}

macro_rules! numbered {
    ($($type:ident { $($number:literal $name:ident,)* })*) => {$(
        impl Field<u32> for $type {
            fn into_wire(self) -> u32 {
                match self {
                    $type::Unknown => 0,
                    $($type::$name => $number,)*
                }
            }
            fn from_wire(wire: u32) -> $type {
                match wire {
                    $($number => $type::$name,)*
                    _ => $type::Unknown,
                }
            }
        }
    )*};
}

numbered! {
    Clock { 1 Tsc, 2 Sequence, 3 Monotonic, }
    ImageOrigin { 1 Launched, 2 Exec, 3 Fork, 4 Attached, }
    ImageEndReason { 1 Exec, 2 Exit, 3 Detached, 4 Lost, }
}
