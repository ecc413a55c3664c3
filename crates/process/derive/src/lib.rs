//! The macros of Heapledger. The crate `heapledger` re-exports them, and compiles their examples:
//! here these would need every library of Heapledger a second time, for a compiler plugin. So
//! `cargo test --doc` does not see them here.

mod heap_size;
mod in_context;
mod reporter;
mod sizes;
#[cfg(feature = "stamps")]
mod stamped;

use proc_macro::TokenStream;
use syn::parse_macro_input;

#[cfg_attr(not(doctest), doc = include_str!("../docs/in_context.md"))]
#[proc_macro_attribute]
pub fn in_context(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as syn::ItemFn);
    in_context::expand(arguments.into(), function).unwrap_or_else(|error| error.into_compile_error()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/stamped.md"))]
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

#[cfg_attr(not(doctest), doc = include_str!("../docs/reporter.md"))]
#[proc_macro_attribute]
pub fn reporter(path: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as syn::ItemFn);
    reporter::expand(path.into(), function).unwrap_or_else(|error| error.into_compile_error()).into()
}

/// Expands the attribute `reporter` on systems where nothing is collected: the function is left
/// out.
#[doc(hidden)]
#[proc_macro_attribute]
pub fn no_reporter(_: TokenStream, _: TokenStream) -> TokenStream {
    TokenStream::new()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/heap_size.md"))]
#[proc_macro_derive(HeapSize, attributes(heap))]
pub fn heap_size(item: TokenStream) -> TokenStream {
    let input = parse_macro_input!(item as syn::DeriveInput);
    heap_size::expand(input).unwrap_or_else(|error| error.into_compile_error()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/sizes.md"))]
#[proc_macro_derive(Sizes, attributes(heap))]
pub fn sizes(item: TokenStream) -> TokenStream {
    let input = parse_macro_input!(item as syn::DeriveInput);
    sizes::expand(input).unwrap_or_else(|error| error.into_compile_error()).into()
}
