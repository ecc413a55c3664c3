//! `#[derive(Sizes)]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error};

pub(crate) fn expand(input: DeriveInput) -> Result<TokenStream, Error> {
    let krate = crate::heap_size::krate(&input.attrs)?;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "sizes that add are the fields of a struct"));
    };
    let members: Vec<_> = data.fields.members().collect();
    let types: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
    let add = members.iter().zip(&types).map(|(member, of)| {
        quote_spanned!(of.span()=> <#of as ::core::ops::AddAssign>::add_assign(&mut self.#member, other.#member);)
    });
    let total = members
        .iter()
        .zip(&types)
        .map(|(member, of)| quote_spanned!(of.span()=> <#of as #krate::Sizes>::total(&self.#member)));
    let name = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::core::ops::AddAssign for #name #type_generics #where_clause {
            fn add_assign(&mut self, other: Self) {
                #(#add)*
            }
        }

        #[automatically_derived]
        impl #impl_generics #krate::Sizes for #name #type_generics #where_clause {
            fn total(&self) -> #krate::Bytes {
                #krate::Bytes(0) #(+ #total)*
            }
        }
    })
}
