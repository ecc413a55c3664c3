//! `#[in_context(…)]`.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Error, ItemFn, ReturnType, Type, TypeImplTrait};

pub(crate) fn expand(arguments: TokenStream, function: ItemFn) -> Result<TokenStream, Error> {
    if arguments.is_empty() {
        return Err(Error::new(Span::call_site(), "a context has a name: `#[in_context(\"layout.reflow\")]`"));
    }
    if let Some(token) = &function.sig.constness {
        return Err(Error::new_spanned(token, "a `const fn` may run in the compiler, where there are no contexts"));
    }
    let ItemFn { attrs, vis, sig, block, .. } = function;
    let body = if sig.asyncness.is_none() {
        quote! {
            let _scope = ::heapledger::context!(#arguments);
            #block
        }
    } else {
        // The type of the block cannot be inferred through the wrapper.
        let block = match &sig.output {
            ReturnType::Type(_, of) if !is_opaque(of) => quote! { { let output: #of = #block; output } },
            _ => quote! { #block },
        };
        quote! {
            ::heapledger::__private::InScope::new(::heapledger::__entry!(#arguments), async move #block).await
        }
    };
    Ok(quote! {
        #(#attrs)* #vis #sig {
            #body
        }
    })
}

/// True if a return type cannot be written elsewhere.
pub(crate) fn is_opaque(of: &Type) -> bool {
    matches!(of, Type::ImplTrait(TypeImplTrait { .. }))
}
