//! The macros of Heapledger: see the crate `heapledger`, which re-exports them.

mod heap_size;
mod in_context;
mod reporter;
mod sizes;
#[cfg(feature = "stamps")]
mod stamped;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Makes a function a scope: what is allocated in it belongs to that context.
///
/// It takes what the macro `context!` takes. Values are computed when the function is entered, and may use its
/// arguments. Of an `async` function every poll is in the scope, in whichever thread it happens.
///
/// ```
/// # extern crate heapledger_context as heapledger;
/// # use heapledger_derive::in_context;
/// # use heapledger::Context;
/// #[in_context("layout.reflow")]
/// fn reflow() -> String {
///     Context::current().to_string()
/// }
///
/// struct Server;
///
/// impl Server {
///     #[in_context(task, "http.request", route = route)]
///     async fn answer(&self, route: &str) -> Result<String, std::fmt::Error> {
///         Ok(Context::current().to_string())
///     }
/// }
///
/// assert_eq!(reflow(), "layout.reflow");
/// # let mut future = std::pin::pin!(Server.answer("/users"));
/// # let mut waker = std::task::Context::from_waker(std::task::Waker::noop());
/// # assert_eq!(future.as_mut().poll(&mut waker), std::task::Poll::Ready(Ok("http.request{route=/users}".to_owned())));
/// ```
///
/// A function that returns a future without being `async` is in the scope only while it makes the future: there,
/// `InContext` is the way.
///
/// It belongs on functions, and has to have a name:
///
/// ```compile_fail
/// # extern crate heapledger_context as heapledger;
/// # use heapledger_derive::in_context;
/// #[in_context("layout")]
/// struct Layout;
/// ```
///
/// ```compile_fail
/// # extern crate heapledger_context as heapledger;
/// # use heapledger_derive::in_context;
/// #[in_context]
/// fn reflow() {}
/// ```
///
/// A function that the compiler may run has no contexts:
///
/// ```compile_fail
/// # extern crate heapledger_context as heapledger;
/// # use heapledger_derive::in_context;
/// #[in_context("layout")]
/// const fn reflow() {}
/// ```
#[proc_macro_attribute]
pub fn in_context(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as syn::ItemFn);
    in_context::expand(arguments.into(), function).unwrap_or_else(|error| error.into_compile_error()).into()
}

/// Stamps what a function returns, as the macro `stamp!` does: the blocks of its result get the name of their type, and the
/// place of the attribute. A label may be given.
///
/// ```
/// # extern crate heapledger_stamp as heapledger;
/// # use heapledger_derive::stamped;
/// #[stamped]
/// fn read(path: &str) -> Result<Vec<u8>, std::io::Error> {
///     if path.is_empty() {
///         return Ok(Vec::new());
///     }
///     let text = std::fs::read(path)?;
///     Ok(text)
/// }
///
/// #[stamped("of a request")]
/// async fn answer(route: &str) -> String {
///     format!("nothing at {route}")
/// }
/// # assert_eq!(read("").unwrap(), []);
/// # let mut future = std::pin::pin!(answer("/"));
/// # let mut waker = std::task::Context::from_waker(std::task::Waker::noop());
/// # assert_eq!(future.as_mut().poll(&mut waker), std::task::Poll::Ready("nothing at /".to_owned()));
/// ```
///
/// Without the feature `stamps` the function is left as it is.
///
/// It belongs on functions that return something:
///
/// ```compile_fail
/// # extern crate heapledger_stamp as heapledger;
/// # use heapledger_derive::stamped;
/// #[stamped]
/// fn returns_nothing() {}
/// ```
///
/// and that own blocks:
///
/// ```compile_fail,E0277
/// # extern crate heapledger_stamp as heapledger;
/// # use heapledger_derive::stamped;
/// #[stamped]
/// fn number() -> u32 {
///     7
/// }
/// ```
#[proc_macro_attribute]
pub fn stamped(arguments: TokenStream, item: TokenStream) -> TokenStream {
    #[cfg(feature = "stamps")]
    {
        let function = parse_macro_input!(item as syn::ItemFn);
        stamped::expand(arguments.into(), function).unwrap_or_else(|error| error.into_compile_error()).into()
    }
    #[cfg(not(feature = "stamps"))]
    {
        let _ = arguments;
        item
    }
}

/// Makes a function a memory reporter, which is there before `main` begins; of a library that is loaded, as long as that is.
/// The path is that below which it reports.
///
/// ```
/// # mod reports { pub use heapledger_report::*; }
/// # extern crate heapledger_report as heapledger;
/// # use heapledger_derive::reporter;
/// use reports::{Collector, Options};
///
/// #[reporter("requests")]
/// fn report(collector: &mut Collector) {
///     collector.count("open", 3, "Requests that have not been answered.");
/// }
///
/// let reports = reports::collect(&Options::default());
/// assert!(reports.reports.iter().any(|report| &*report.path == "requests/open"));
/// ```
///
/// It has a path, which is constant, and takes a collector:
///
/// ```compile_fail
/// # extern crate heapledger_report as heapledger;
/// # use heapledger_derive::reporter;
/// #[reporter]
/// fn report(_: &mut heapledger::Collector) {}
/// ```
///
/// ```compile_fail,E0308
/// # extern crate heapledger_report as heapledger;
/// # use heapledger_derive::reporter;
/// #[reporter("requests")]
/// fn report(_: &mut String) {}
/// ```
///
/// ```compile_fail
/// # extern crate heapledger_report as heapledger;
/// # use heapledger_derive::reporter;
/// #[reporter("requests")]
/// async fn report(_: &mut heapledger::Collector) {}
/// ```
#[proc_macro_attribute]
pub fn reporter(path: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as syn::ItemFn);
    reporter::expand(path.into(), function).unwrap_or_else(|error| error.into_compile_error()).into()
}

/// The attribute `reporter` of systems where nobody collects: the function is left out.
#[doc(hidden)]
#[proc_macro_attribute]
pub fn no_reporter(_: TokenStream, _: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// Implements `HeapSize`: what all fields own together.
///
/// ```
/// # extern crate heapledger_measure as heapledger;
/// # use heapledger_derive::HeapSize;
/// use heapledger::{Bytes, HeapContainer, HeapSize, Meter};
/// use std::collections::HashMap;
/// use std::sync::Arc;
///
/// #[derive(HeapSize)]
/// struct Cache<K> {
///     entries: HashMap<K, Entry>,
///     /// Others have it, too: it counts where it is met first.
///     #[heap(shared)]
///     index: Arc<Vec<u32>>,
///     /// From a crate that does not measure.
///     #[heap(with = foreign_size)]
///     foreign: Vec<foreign::Thing>,
///     #[heap(skip = "counted by the arena's own reporter")]
///     arena: foreign::Arena,
/// }
///
/// #[derive(HeapSize)]
/// enum Entry {
///     Page { title: String, body: Box<[u8]> },
///     Moved(String),
///     Gone,
/// }
///
/// fn foreign_size(things: &Vec<foreign::Thing>, meter: &mut Meter) -> Bytes {
///     things.heap_size_with(meter, |thing, meter| thing.name.heap_size(meter))
/// }
/// # mod foreign { pub struct Arena; pub struct Thing { pub name: String } }
/// # let entries = [Entry::Page { title: "a".repeat(10), body: [1; 100].into() }, Entry::Moved("b".repeat(9)), Entry::Gone];
/// # let cache = Cache { entries: HashMap::from_iter((0..).zip(entries)), index: vec![1; 10].into(), foreign: vec![
/// #     foreign::Thing { name: "c".repeat(7) }], arena: foreign::Arena };
/// # let _ = &cache.arena;
/// # assert!(cache.heap_size(&mut Meter::new()).0 > 10 + 100 + 9 + 16 + 24 + 40 + 24 + 7);
/// ```
///
/// | on a field | is |
/// |---|---|
/// | nothing | what `HeapSize` of its type says |
/// | `#[heap(shared)]` | of an `Rc`, `Arc` or another `SharedHeapSize`: what it shares, if the meter meets it first |
/// | `#[heap(owner)]` | the same, in any case: this is the field that answers for it |
/// | `#[heap(with = path)]` | what a function says, called with a reference to the field and the meter |
/// | `#[heap(skip = "reason")]` | nothing |
///
/// Type parameters of which something is measured have to be `HeapSize`. With `#[heap(crate = path)]` on the type the
/// code refers to `path` instead of `::heapledger`: to `heapledger_measure`, for instance.
///
/// A field that is not measured has a reason:
///
/// ```compile_fail
/// # extern crate heapledger_measure as heapledger;
/// # use heapledger_derive::HeapSize;
/// #[derive(HeapSize)]
/// struct Cache {
///     #[heap(skip)]
///     entries: Vec<u8>,
/// }
/// ```
///
/// one with words in it:
///
/// ```compile_fail
/// # extern crate heapledger_measure as heapledger;
/// # use heapledger_derive::HeapSize;
/// #[derive(HeapSize)]
/// struct Cache {
///     #[heap(skip = " ")]
///     entries: Vec<u8>,
/// }
/// ```
///
/// What several own is no one's by itself:
///
/// ```compile_fail,E0277
/// # extern crate heapledger_measure as heapledger;
/// # use heapledger_derive::HeapSize;
/// #[derive(HeapSize)]
/// struct Cache {
///     entries: std::sync::Arc<Vec<u8>>,
/// }
/// ```
///
/// A field is measured in one way:
///
/// ```compile_fail
/// # extern crate heapledger_measure as heapledger;
/// # use heapledger_derive::HeapSize;
/// #[derive(HeapSize)]
/// struct Cache {
///     #[heap(shared, skip = "it is shared")]
///     entries: std::sync::Arc<Vec<u8>>,
/// }
/// ```
///
/// Nothing is said of variants, or that does not exist:
///
/// ```compile_fail
/// # extern crate heapledger_measure as heapledger;
/// # use heapledger_derive::HeapSize;
/// #[derive(HeapSize)]
/// enum Entry {
///     #[heap(skip = "of no interest")]
///     Page(String),
/// }
/// ```
///
/// ```compile_fail
/// # extern crate heapledger_measure as heapledger;
/// # use heapledger_derive::HeapSize;
/// #[derive(HeapSize)]
/// struct Cache {
///     #[heap(ignore = "of no interest")]
///     entries: Vec<u8>,
/// }
/// ```
///
/// A union does not know what it has:
///
/// ```compile_fail
/// # extern crate heapledger_measure as heapledger;
/// # use heapledger_derive::HeapSize;
/// #[derive(HeapSize)]
/// union Word {
///     number: u64,
///     bytes: [u8; 8],
/// }
/// ```
#[proc_macro_derive(HeapSize, attributes(heap))]
pub fn heap_size(item: TokenStream) -> TokenStream {
    let input = parse_macro_input!(item as syn::DeriveInput);
    heap_size::expand(input).unwrap_or_else(|error| error.into_compile_error()).into()
}

/// Makes of a struct of sizes one that adds: implements `AddAssign` and `Sizes`, field by field.
///
/// To measure something in several numbers, one for each line that is to be reported. Numbers are added to what is there:
/// so the same struct takes what one thing owns, or what all of them do.
///
/// ```
/// # extern crate heapledger_measure as heapledger;
/// # use heapledger_derive::Sizes;
/// use heapledger::{Bytes, HeapContainer, HeapSize, Meter, Sizes};
///
/// #[derive(Default, Sizes)]
/// struct TableSizes {
///     names: Bytes,
///     rows: Bytes,
/// }
///
/// struct Table {
///     name: String,
///     rows: Vec<Vec<f64>>,
/// }
///
/// impl Table {
///     fn add_sizes(&self, meter: &mut Meter, sizes: &mut TableSizes) {
///         sizes.names += self.name.heap_size(meter);
///         sizes.rows += self.rows.heap_size(meter);
///     }
/// }
///
/// let tables = [("a", 10), ("b", 20)].map(|(name, rows)| Table { name: name.into(), rows: vec![vec![0.5]; rows] });
/// let (mut meter, mut sizes) = (Meter::new(), TableSizes::default());
/// tables.iter().for_each(|table| table.add_sizes(&mut meter, &mut sizes));
/// assert!(sizes.rows.0 >= 30 * (24 + 8));
/// assert_eq!(sizes.total(), sizes.names + sizes.rows);
/// ```
///
/// A field may be a struct of sizes itself.
///
/// ```compile_fail
/// # extern crate heapledger_measure as heapledger;
/// # use heapledger_derive::Sizes;
/// #[derive(Sizes)]
/// struct TableSizes {
///     name: String,
/// }
/// ```
#[proc_macro_derive(Sizes, attributes(heap))]
pub fn sizes(item: TokenStream) -> TokenStream {
    let input = parse_macro_input!(item as syn::DeriveInput);
    sizes::expand(input).unwrap_or_else(|error| error.into_compile_error()).into()
}
