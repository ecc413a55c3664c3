//! The probabilistic heap checker in the program itself.

use heapledger_annotate::untracked;
use heapledger_phc as phc;

pub use heapledger_phc::{
    PhcBlock, PhcEvent, PhcLookup, PhcOptions, PhcPageKind, PhcPlacement, PhcSites, PhcStartError, PhcState, PhcStats,
};

/// The probabilistic heap checker of this process: a few allocations are sampled, and any access to
/// one of these blocks that is out of its bounds, or comes after its free, is a fault, which is
/// reported on standard error with the stacks of the access, the free and the allocation. The
/// process then ends as it would at such a fault. So does a double or wrong free of such a block.
///
/// The checker samples the calls of the program's `#[global_allocator]`, if that is Heapledger's.
/// `heapledger run --phc` does the same for programs that link nothing, and names functions; see
/// `docs/phc.md` of the project.
///
/// A process has one checker, which runs to its end. Methods may be called in any thread, at any
/// time. A handler of SIGSEGV or SIGBUS that the program has installed before is called after a
/// report; one that it installs later replaces the checker's, and nothing is reported then.
///
/// ```
/// use heapledger_query::HeapChecker;
/// # #[global_allocator]
/// # static ALLOCATOR: heapledger_allocator::Allocator = heapledger_allocator::Allocator::system();
/// # use heapledger_query::{PhcOptions, PhcStartError};
/// # let small = HeapChecker::start_with(&PhcOptions { memory_min: u64::MAX, ..PhcOptions::default() });
/// # assert_eq!(small.unwrap_err(), PhcStartError::SmallMachine);
///
/// # fn main() { if false {
/// HeapChecker::start().unwrap();
/// # } }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HeapChecker(());

impl HeapChecker {
    /// Starts the checker with its default options: about one block in 16,384 is sampled, and it
    /// does not run on a machine with less than 8 GB of memory.
    ///
    /// # Errors
    ///
    /// See [`PhcStartError`].
    pub fn start() -> Result<HeapChecker, PhcStartError> {
        HeapChecker::start_with(&PhcOptions::default())
    }

    /// Starts the checker.
    ///
    /// # Errors
    ///
    /// See [`PhcStartError`].
    pub fn start_with(options: &PhcOptions) -> Result<HeapChecker, PhcStartError> {
        untracked::scope(|| phc::start(options))?;
        phc::install_handlers();
        Ok(HeapChecker(()))
    }

    /// Returns the checker, whether it runs or not.
    pub fn get() -> HeapChecker {
        HeapChecker(())
    }

    /// True if the checker has been started.
    pub fn is_running(self) -> bool {
        phc::is_running()
    }

    /// Stops sampling, or resumes it. Blocks that were sampled before stay so until they are freed
    /// or reallocated. Threads see the change after at most 256 allocations (4,096 on Heapledger's
    /// allocator), or, if sampling was stopped, 65,536.
    pub fn set_state(self, state: PhcState) {
        phc::set_state(state);
    }

    /// Returns the figures of the checker. Waits for threads that allocate or free a sampled block.
    pub fn stats(self) -> PhcStats {
        phc::stats()
    }

    /// Looks an address up. Never waits, also in a signal handler, where a program may ask about
    /// the address of a fault.
    pub fn lookup(self, address: *const u8) -> PhcLookup {
        phc::lookup(address as usize)
    }

    /// Adds a function to a list of sites: `main`, `Class::method`, `module::function`, without
    /// arguments and parameters of types. The name of a module stands for all that is in it.
    /// Functions that the compiler has inlined are not found. False if there is no room, for 64
    /// functions with 4 KiB of names. To be called before the checker starts.
    pub fn choose(sites: PhcSites, function: &str) -> bool {
        phc::choose(sites, function)
    }

    /// Returns the stack of a call: addresses in the instructions that made the calls, innermost
    /// first. Allocates nothing.
    pub fn frames(event: PhcEvent) -> impl Iterator<Item = u64> {
        phc::frames(event.stack)
    }

    /// Keeps allocations of this thread out of the sample, until
    /// [`enable_thread`](HeapChecker::enable_thread) was called as often.
    pub fn disable_thread() {
        phc::disable_thread();
    }

    /// Takes one [`disable_thread`](HeapChecker::disable_thread) back.
    pub fn enable_thread() {
        phc::enable_thread();
    }

    /// Runs a function while no allocation of this thread is sampled.
    pub fn without<R>(self, run: impl FnOnce() -> R) -> R {
        /// Ends the exception, also if the function unwinds.
        struct Enabled;
        impl Drop for Enabled {
            fn drop(&mut self) {
                phc::enable_thread();
            }
        }
        phc::disable_thread();
        let _enabled = Enabled;
        run()
    }
}
