//! What the service says of its own heap.

use std::collections::BTreeMap;
use std::fmt::Write;

use axum::extract::Path;
use axum::http::StatusCode;
use heapledger::{Ledger, Options, Order};

/// Starts the ledger, before anything worth recording happens.
pub fn start() {
    if let Err(error) = Ledger::start(Options::default()) {
        eprintln!("no ledger: {error}");
    }
}

/// Totals, contexts and sites, from the running ledger.
pub async fn report() -> String {
    // What the report itself allocates is nobody's business.
    let _ignored = heapledger::context::ignore();
    let ledger = Ledger::get();
    let mut page = format!("{}\n\n", ledger.totals());

    let mut contexts: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
    for site in ledger.sites() {
        let mut scopes: Vec<_> = site.stack.context().map(|scope| scope.name).collect();
        scopes.reverse();
        let (live, blocks, allocations) = contexts.entry(scopes.join(" > ")).or_default();
        *live += site.bytes_live.0;
        *blocks += site.blocks_live.0;
        *allocations += site.allocations.0;
    }
    let mut contexts: Vec<_> = contexts.into_iter().collect();
    contexts.sort_by_key(|(_, (live, ..))| std::cmp::Reverse(*live));
    _ = writeln!(page, "bytes live  blocks live  allocations  context");
    for (context, (live, blocks, allocations)) in contexts {
        let context = if context.is_empty() { "(no context)" } else { &context };
        _ = writeln!(page, "{live:>10}  {blocks:>11}  {allocations:>11}  {context}");
    }
    for site in ledger.top_sites(3, Order::BytesLive) {
        _ = write!(page, "\n{site}");
    }
    _ = write!(page, "\nthe ledger itself: {:?}\nnot recorded: {:?}\n", ledger.overhead(), ledger.losses());
    page
}

/// The live block around an address.
pub async fn block(Path(address): Path<String>) -> Result<String, StatusCode> {
    let address = usize::from_str_radix(address.trim_start_matches("0x"), 16).map_err(|_| StatusCode::BAD_REQUEST)?;
    let block = Ledger::get().block_at(std::ptr::without_provenance::<u8>(address)).ok_or(StatusCode::NOT_FOUND)?;
    Ok(block.to_string())
}
