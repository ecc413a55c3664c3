//! `#[reporter(…)]`.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Error, ItemFn};

pub(crate) fn expand(path: TokenStream, function: ItemFn) -> Result<TokenStream, Error> {
    if path.is_empty() {
        return Err(Error::new(Span::call_site(), "a reporter has a path: `#[reporter(\"explicit/cache\")]`"));
    }
    if let Some(token) = &function.sig.asyncness {
        return Err(Error::new_spanned(token, "nobody would poll it: register it with `register_async`"));
    }
    if !function.sig.generics.params.is_empty() {
        return Err(Error::new_spanned(&function.sig.generics, "nobody would say what it is generic over"));
    }
    let name = &function.sig.ident;
    Ok(quote! {
        #function
        ::heapledger::__reporter!(#path, #name);
    })
}
