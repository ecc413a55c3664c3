//! `#[derive(HeapSize)]`.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Field, Fields, Generics, LitStr, Path, Type, TypeParamBound, parse_quote,
};

pub(crate) fn expand(mut input: DeriveInput) -> Result<TokenStream, Error> {
    let krate = krate(&input.attrs)?;
    let variants: Vec<(TokenStream, &Fields)> = match &input.data {
        Data::Struct(data) => vec![(quote!(Self), &data.fields)],
        Data::Enum(data) => data
            .variants
            .iter()
            .map(|variant| {
                refuse(&variant.attrs)?;
                let name = &variant.ident;
                Ok((quote!(Self::#name), &variant.fields))
            })
            .collect::<Result<_, Error>>()?,
        Data::Union(data) => {
            return Err(Error::new(
                data.union_token.span,
                "a union does not know which of its fields it has: implement `HeapSize` by hand",
            ));
        }
    };

    let mut arms = Vec::new();
    let mut owns_nothing = Vec::new();
    let mut measured = Vec::new();
    for (path, fields) in variants {
        let (mut patterns, mut sizes) = (Vec::new(), Vec::new());
        for (index, field) in fields.iter().enumerate() {
            let how = FieldTreatment::of(field)?;
            if matches!(how, FieldTreatment::Skip) {
                continue;
            }
            let name = match &field.ident {
                Some(name) => quote!(#name),
                None => {
                    let index = syn::Index::from(index);
                    quote!(#index)
                }
            };
            let value = format_ident!("field_{index}", span = Span::mixed_site());
            patterns.push(quote!(#name: #value));
            let of = &field.ty;
            if !matches!(how, FieldTreatment::With(_)) {
                measured.push(of.clone());
            }
            sizes.push(how.size(of, &value, &krate));
            // A type that may be unsized cannot be asked here: its fields are measured one by one.
            owns_nothing.push(if matches!(how, FieldTreatment::Measure) && !may_be_unsized(of, &input.generics) {
                quote_spanned!(of.span()=> <#of as #krate::HeapSize>::owns_nothing())
            } else {
                quote!(false)
            });
        }
        arms.push(quote!(#path { #(#patterns,)* .. } => #krate::Bytes(0) #(+ #sizes)*,));
    }

    bound(&mut input, &krate, &measured);
    let name = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    let body = if arms.is_empty() { quote!(match *self {}) } else { quote!(match self { #(#arms)* }) };
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #krate::HeapSize for #name #type_generics #where_clause {
            #[allow(unused_variables, reason = "nothing may be measured")]
            fn heap_size(&self, meter: &mut #krate::Meter) -> #krate::Bytes {
                #body
            }

            fn owns_nothing() -> bool
            where
                Self: ::core::marker::Sized,
            {
                true #(&& #owns_nothing)*
            }
        }
    })
}

/// The treatment of a field.
enum FieldTreatment {
    /// Counts the memory that the field owns.
    Measure,
    /// Counts the memory that the field shares, if this is its first visit.
    Shared,
    /// Counts the memory that the field shares, in any case.
    Owner,
    /// Counts what a function returns.
    With(Path),
    /// Counts nothing, for a stated reason.
    Skip,
}

impl FieldTreatment {
    fn of(field: &Field) -> Result<FieldTreatment, Error> {
        let mut how = None;
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("heap")) {
            attribute.parse_nested_meta(|meta| {
                let this = if meta.path.is_ident("shared") {
                    FieldTreatment::Shared
                } else if meta.path.is_ident("owner") {
                    FieldTreatment::Owner
                } else if meta.path.is_ident("with") {
                    FieldTreatment::With(meta.value()?.parse()?)
                } else if meta.path.is_ident("skip") {
                    const REASON: &str = "a field that is not measured has a reason: `#[heap(skip = \"what measures it, or why \
                        nothing does\")]`";
                    let reason: LitStr =
                        meta.value().and_then(|value| value.parse()).map_err(|_| Error::new(meta.path.span(), REASON))?;
                    if reason.value().trim().is_empty() {
                        return Err(Error::new(reason.span(), REASON));
                    }
                    FieldTreatment::Skip
                } else {
                    return Err(meta.error("a field is `shared`, `owner`, `with = path` or `skip = \"reason\"`"));
                };
                if how.replace(this).is_some() {
                    return Err(meta.error("a field is measured in one way"));
                }
                Ok(())
            })?;
        }
        Ok(how.unwrap_or(FieldTreatment::Measure))
    }

    /// Returns the expression for the size of a field of the type `of`, which is in `value`.
    fn size(&self, of: &Type, value: &Ident, krate: &Path) -> TokenStream {
        let span = of.span();
        match self {
            FieldTreatment::Measure => quote_spanned!(span=> #krate::HeapSize::heap_size(#value, meter)),
            FieldTreatment::Shared => quote_spanned!(span=> #krate::SharedHeapSize::heap_size_if_first(#value, meter)),
            FieldTreatment::Owner => quote_spanned!(span=> #krate::SharedHeapSize::heap_size_as_owner(#value, meter)),
            FieldTreatment::With(function) => quote_spanned!(function.span()=> #function(#value, meter)),
            FieldTreatment::Skip => quote!(#krate::Bytes(0)),
        }
    }
}

/// Returns the path of `#[heap(crate = path)]` on the type.
pub(crate) fn krate(attributes: &[Attribute]) -> Result<Path, Error> {
    let mut krate = parse_quote!(::heapledger);
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("heap")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("of a type only `crate = path` is said; what is said of fields stands there"));
            }
            krate = meta.value()?.call(Path::parse_mod_style)?;
            Ok(())
        })?;
    }
    Ok(krate)
}

/// Refuses `#[heap]` attributes on variants.
fn refuse(attributes: &[Attribute]) -> Result<(), Error> {
    match attributes.iter().find(|attribute| attribute.path().is_ident("heap")) {
        Some(attribute) => Err(Error::new(attribute.span(), "`#[heap(…)]` stands on fields, not on variants")),
        None => Ok(()),
    }
}

/// Adds the bounds: measured type parameters own memory too, and so do their associated types.
fn bound(input: &mut DeriveInput, krate: &Path, measured: &[Type]) {
    let parameters: Vec<Ident> = input.generics.type_params().map(|parameter| parameter.ident.clone()).collect();
    let mut bounds: Vec<TokenStream> = Vec::new();
    for of in measured.iter().filter(|of| !points_elsewhere(of)) {
        let tokens: Vec<TokenTree> = flat(quote!(#of));
        for (at, token) in tokens.iter().enumerate() {
            let TokenTree::Ident(name) = token else { continue };
            if !parameters.contains(name) || is_behind_colons(&tokens, at) {
                continue;
            }
            bounds.push(match belonging(&tokens, at) {
                Some(belonging) => quote!(#name::#belonging: #krate::HeapSize),
                None => quote!(#name: #krate::HeapSize),
            });
        }
    }
    let mut known = Vec::new();
    let clause = input.generics.make_where_clause();
    for bound in bounds {
        let text = bound.to_string();
        if !known.contains(&text) {
            known.push(text);
            clause.predicates.push(parse_quote!(#bound));
        }
    }
}

/// True if a field of this type owns nothing, whatever its type parameters are.
fn points_elsewhere(of: &Type) -> bool {
    match of {
        Type::Reference(_) | Type::Ptr(_) => true,
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "PhantomData"),
        _ => false,
    }
}

/// True if a field's type may be unsized: the last field of a struct, if it is a slice or a type
/// parameter.
fn may_be_unsized(of: &Type, generics: &Generics) -> bool {
    let tokens = flat(quote!(#of));
    let is_relaxed = |bound: &TypeParamBound| matches!(bound, TypeParamBound::Trait(bound) if quote!(#bound).to_string().contains('?'));
    let mut relaxed = generics.type_params().filter(|parameter| parameter.bounds.iter().any(is_relaxed));
    let is_text = |name: &Ident| name == "str" || name == "Path" || name == "OsStr" || name == "CStr";
    matches!(of, Type::Slice(_) | Type::TraitObject(_))
        || matches!(of, Type::Path(path) if path.path.segments.last().is_some_and(|last| is_text(&last.ident)))
        || relaxed.any(|parameter| {
            tokens.iter().any(|token| matches!(token, TokenTree::Ident(name) if *name == parameter.ident))
        })
        || generics.where_clause.as_ref().is_some_and(|clause| quote!(#clause).to_string().contains('?'))
}

/// Returns all tokens, including those inside brackets.
fn flat(tokens: TokenStream) -> Vec<TokenTree> {
    let each = tokens.into_iter().flat_map(|token| match token {
        TokenTree::Group(group) => flat(group.stream()),
        token => vec![token],
    });
    each.collect()
}

fn is_colon(tokens: &[TokenTree], at: usize) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':')
}

fn is_behind_colons(tokens: &[TokenTree], at: usize) -> bool {
    at > 0 && is_colon(tokens, at - 1)
}

/// Returns the name behind `T::`.
fn belonging(tokens: &[TokenTree], at: usize) -> Option<&Ident> {
    match tokens.get(at + 3) {
        Some(TokenTree::Ident(name)) if is_colon(tokens, at + 1) && is_colon(tokens, at + 2) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(input: DeriveInput) -> String {
        expand(input).unwrap_err().to_string()
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        let reason =
            "a field that is not measured has a reason: `#[heap(skip = \"what measures it, or why nothing does\")]`";
        assert_eq!(refused(parse_quote! { struct A { #[heap(skip)] b: u8 } }), reason);
        assert_eq!(refused(parse_quote! { struct A { #[heap(skip = "")] b: u8 } }), reason);
        assert_eq!(refused(parse_quote! { struct A(#[heap(skip = 7)] u8); }), reason);
        let ways = "a field is `shared`, `owner`, `with = path` or `skip = \"reason\"`";
        assert_eq!(refused(parse_quote! { struct A(#[heap(ignore)] u8); }), ways);
        let once = "a field is measured in one way";
        assert_eq!(refused(parse_quote! { struct A(#[heap(shared, owner)] u8); }), once);
        assert_eq!(refused(parse_quote! { struct A(#[heap(shared)] #[heap(skip = "why")] u8); }), once);
        let variants = "`#[heap(…)]` stands on fields, not on variants";
        assert_eq!(refused(parse_quote! { enum A { #[heap(skip = "why")] B } }), variants);
        assert!(refused(parse_quote! { #[heap(shared)] struct A; }).contains("only `crate = path`"));
        assert!(refused(parse_quote! { union A { b: u8 } }).contains("by hand"));
    }

    #[test]
    fn parameters_are_bound_where_they_are_measured() {
        let bounds = |input: DeriveInput| {
            let item: syn::ItemImpl = syn::parse2(expand(input).unwrap()).unwrap();
            let clause = item.generics.where_clause;
            clause.map_or(String::new(), |clause| quote!(#clause).to_string().replace(' ', ""))
        };
        let measured = bounds(parse_quote! { struct A<T, U>(Vec<T>, Option<(T, U)>); });
        assert_eq!(measured, "whereT:::heapledger::HeapSize,U:::heapledger::HeapSize");
        assert_eq!(bounds(parse_quote! { struct A<T>(#[heap(skip = "why")] T, &'static T, PhantomData<T>); }), "");
        assert_eq!(bounds(parse_quote! { struct A<T>(#[heap(with = size)] Vec<T>); }), "");
        assert_eq!(bounds(parse_quote! { struct A<T>(#[heap(shared)] Arc<T>); }), "whereT:::heapledger::HeapSize");
        let belonging = bounds(parse_quote! { #[heap(crate = m)] struct A<T: Iterator>(Vec<T::Item>) where T: Copy; });
        assert_eq!(belonging, "whereT:Copy,T::Item:m::HeapSize");
        assert_eq!(bounds(parse_quote! { struct A<T>(other::T, T::B::C); }), "whereT::B:::heapledger::HeapSize");
    }
}
