//! The attribute macros of Heapledger: see the crate `heapledger`, which re-exports them.

mod in_context;

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
