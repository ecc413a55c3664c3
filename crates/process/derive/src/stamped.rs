//! `#[stamped]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, ItemFn, ReturnType};

use crate::in_context::is_opaque;

pub(crate) fn expand(label: TokenStream, function: ItemFn) -> Result<TokenStream, Error> {
    if let Some(token) = &function.sig.constness {
        return Err(Error::new_spanned(token, "a `const fn` may run in the compiler, where there are no blocks"));
    }
    if matches!(function.sig.output, ReturnType::Default) {
        return Err(Error::new_spanned(
            &function.sig,
            "what is stamped is what a function returns: this one returns nothing",
        ));
    }
    let ItemFn { attrs, vis, sig, block, .. } = function;
    let of = match &sig.output {
        ReturnType::Type(_, of) if !is_opaque(of) => Some(of),
        _ => None,
    };
    // The body is in a closure of its own, so that it may return early.
    let output = match (sig.asyncness.is_some(), of) {
        (false, Some(of)) => quote! { (move || -> #of #block)() },
        (false, None) => quote! { (move || #block)() },
        // The type of the block cannot be inferred through the macro.
        (true, Some(of)) => quote! { (async move { let output: #of = #block; output }).await },
        (true, None) => quote! { (async move #block).await },
    };
    let label = if label.is_empty() { quote!() } else { quote!(, #label) };
    Ok(quote! {
        #(#attrs)*
        #[allow(clippy::redundant_closure_call, clippy::needless_return)]
        #vis #sig {
            ::heapledger::stamp!(#output #label)
        }
    })
}
