//! The attribute macros of Heapledger: see the crate `heapledger`, which re-exports them.

mod in_context;
mod reporter;
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
