//! The figures of a replay with one allocator.

use heapledger_wire::replay::SYSTEM_CALLS;

/// The figures of an allocator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The processor time of the calls in nanoseconds, with that of the player.
    pub cpu_ns: u64,
    /// The same time of the player alone: of a run with functions that do nothing.
    pub cpu_player_ns: u64,
    /// The time from the first call to the last in nanoseconds, with that of the player.
    pub wall_ns: u64,
    /// The same time of the player alone.
    pub wall_player_ns: u64,
    /// Page faults, without those of the player alone.
    pub faults_minor: u64,
    /// Page faults that needed a device.
    pub faults_major: u64,
    /// The system calls that change mappings, in the order of [`Run::SYSTEM_CALLS`]. `None` if the
    /// kernel does not let them be counted.
    pub system_calls: Option<[u64; SYSTEM_CALLS]>,
    /// Requests that the allocator did not answer.
    pub failed: u64,
    /// The memory of the process, at up to 2,000 moments in order.
    pub samples: Vec<Sample>,
    /// The size classes with requests.
    pub classes: Vec<SizeClass>,
    /// The usable sizes with live blocks, when the usable bytes of all live blocks were the most
    /// that a sample saw.
    pub bins: Vec<SizeClass>,
    /// The live blocks at each point at which the program asked for statistics, in order.
    pub points: Vec<PointBlocks>,
}

/// The live blocks at a point at which the program asked for statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PointBlocks {
    /// By their usable sizes.
    pub bins: Vec<SizeClass>,
    /// By their requested sizes: each of the sizes below 32 bytes, and 16 buckets for each power of
    /// two above.
    pub requests: Vec<RequestBucket>,
    /// The bins of Heapledger's allocator, by its own statistics.
    pub own_bins: Vec<OwnBin>,
}

/// Live blocks by their requested size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestBucket {
    /// The smallest size in bytes; the bucket ends before the next one.
    pub size_min: u64,
    /// The number of blocks.
    pub blocks: u64,
}

/// The runs of one size, in bytes unless another unit is said: see `heapledger/allocator.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnBin {
    /// The size of a block.
    pub size: u64,
    /// The number of runs.
    pub runs: u64,
    /// The number of those with a free block.
    pub runs_non_full: u64,
    /// Free blocks that were in use before.
    pub unused: u64,
    /// All runs.
    pub total: u64,
    /// The number of blocks in use.
    pub blocks: u64,
}

/// The memory of the process at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The number of calls that the program had made, to 1,024.
    pub calls: u64,
    /// The requested bytes of live blocks.
    pub requested: u64,
    /// Their usable bytes.
    pub usable: u64,
    /// Resident anonymous memory.
    pub resident: u64,
    /// Mapped addresses.
    pub mapped: u64,
    /// True if the program asked for statistics here.
    pub is_statistics: bool,
    /// The moment in the recording, in nanoseconds, or in the log, as a number of a line.
    pub moment: u64,
    /// The time in the replay since the first call, in nanoseconds.
    pub time_ns: u64,
    /// The live blocks with more usable bytes than were requested.
    pub sloppy: u64,
    /// The usable bytes beyond the requested ones of all blocks so far, at points at which the
    /// program asked for statistics.
    pub slop_all: u64,
    /// The allocator's own statistics, at points at which the program asked for them, and at the
    /// end.
    pub own: Option<OwnStatistics>,
}

/// The statistics of Heapledger's allocator in bytes: see `heapledger/allocator.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the header")]
pub struct OwnStatistics {
    pub mapped: u64,
    pub allocated: u64,
    pub waste: u64,
    pub dirty: u64,
    pub fresh: u64,
    pub madvised: u64,
    pub bookkeeping: u64,
    pub bin_unused: u64,
    pub quantum_max: u64,
    pub small_max: u64,
    pub large_max: u64,
}

impl OwnStatistics {
    /// Returns the bytes that the allocator's pages have in memory.
    pub fn committed(&self) -> u64 {
        self.allocated + self.waste + self.dirty + self.bookkeeping + self.bin_unused
    }
}

impl Sample {
    /// Returns the resident bytes that are in no block: free memory that the allocator keeps, its
    /// own data, and what it lost between blocks. 0 if more is usable than is resident.
    pub fn waste(&self) -> u64 {
        self.resident.saturating_sub(self.usable)
    }

    /// Returns waste as a part of resident memory, from 0 to 1.
    pub fn fragmentation(&self) -> f64 {
        self.waste() as f64 / self.resident.max(1) as f64
    }
}

/// Blocks whose size is in a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeClass {
    /// The smallest size of the class in bytes; it ends before the next one. Usable sizes up to
    /// 1,008 bytes are rounded up to a multiple of 16.
    pub size_min: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The sum of their requested sizes.
    pub requested: u64,
    /// The sum of their usable sizes.
    pub usable: u64,
}

impl Run {
    /// The system calls that are counted.
    pub const SYSTEM_CALLS: [&'static str; SYSTEM_CALLS] = ["mmap", "munmap", "mremap", "madvise", "mprotect", "brk"];

    /// Returns the processor time of the allocator in nanoseconds.
    pub fn cpu_allocator_ns(&self) -> u64 {
        self.cpu_ns.saturating_sub(self.cpu_player_ns)
    }

    /// Returns the time from the first call to the last without that of the player, in nanoseconds.
    pub fn wall_allocator_ns(&self) -> u64 {
        self.wall_ns.saturating_sub(self.wall_player_ns)
    }

    /// Returns the most addresses that a sample saw, in bytes.
    pub fn mapped_max(&self) -> u64 {
        self.samples.iter().map(|sample| sample.mapped).max().unwrap_or(0)
    }

    /// Returns the mean of waste as a part of resident memory, over all samples.
    pub fn fragmentation(&self) -> f64 {
        self.samples.iter().map(Sample::fragmentation).sum::<f64>() / self.samples.len().max(1) as f64
    }

    /// Returns the sums of the requested and the usable bytes of all requests.
    pub fn requests(&self) -> (u64, u64) {
        self.classes.iter().fold((0, 0), |sum, class| (sum.0 + class.requested, sum.1 + class.usable))
    }

    /// Returns the first sample with the most resident memory.
    pub fn peak(&self) -> Sample {
        let larger = |peak: Sample, next: Sample| if next.resident > peak.resident { next } else { peak };
        self.samples.iter().copied().reduce(larger).unwrap_or_default()
    }

    /// Returns the last sample.
    pub fn end(&self) -> Sample {
        self.samples.last().copied().unwrap_or_default()
    }
}
