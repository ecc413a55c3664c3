//! Reports about the service's own heap.

use std::collections::BTreeMap;
use std::fmt::Write;

use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use heapledger::profile::{self, Endpoint, Responder};
use heapledger::{Ledger, LedgerOptions, SiteOrder, Site, Symbol};

/// Starts the ledger early: `exact`, `sampled` as in production, or not at all.
pub fn start(how: &str) {
    let started = match how {
        "exact" => Ledger::start(LedgerOptions::EXACT).map(drop),
        "sampled" => profile::start(profile::ProfileOptions::default()),
        _ => return,
    };
    if let Err(error) = started {
        eprintln!("no ledger: {error}");
    }
}

/// Answers `go tool pprof` and scrapers. An answer takes as long as the request wants
/// (`?seconds=30`).
pub async fn pprof(endpoint: Endpoint, request: Request) -> Response {
    let answer = tokio::task::spawn_blocking(move || {
        let headers = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let headers: Vec<(&str, &[u8])> = headers.collect();
        let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
        endpoint.answer(&profile::HttpRequest { method: request.method().as_str(), target, headers: &headers, body: &[] })
    });
    let Ok(answer) = answer.await else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let mut response = Response::builder().status(answer.status);
    for (name, value) in &answer.headers {
        response = response.header(*name, &**value);
    }
    response.body(answer.body.into_owned().into()).unwrap_or_default()
}

/// Returns totals, contexts and sites from the running ledger.
pub async fn report() -> String {
    // The report's own allocations are not recorded.
    let _ignored = heapledger::ignore();
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
    _ = writeln!(page, "\nbytes live  blocks live  allocated by");
    for site in ledger.top_sites(5, SiteOrder::BytesLive) {
        _ = writeln!(page, "{:>10}  {:>11}  {}", site.bytes_live.0, site.blocks_live.0, place(&site));
    }
    _ = write!(page, "\nthe ledger itself: {:?}\nnot recorded: {:?}\n", ledger.overhead(), ledger.losses());
    page
}

/// Returns the innermost functions of a stack, without those of the allocator and the standard
/// library.
fn place(site: &Site) -> String {
    let is_own = |symbol: &Symbol| {
        let file = symbol.file.as_ref().map(|file| file.to_string_lossy()).unwrap_or_default();
        !file.starts_with("/rustc") && !file.contains("process/allocator")
    };
    let symbols = site.stack.frames().flat_map(|frame| frame.symbols());
    symbols.filter(is_own).take(3).map(|symbol| name(&symbol)).collect::<Vec<_>>().join(" < ")
}

/// Returns a function and a line, in short.
fn name(symbol: &Symbol) -> String {
    let file = symbol.file.as_ref().and_then(|file| file.file_name()).unwrap_or_default().to_string_lossy();
    let function = symbol.function.as_deref().unwrap_or_default();
    format!("{} ({file}:{})", function.split(['<', '(']).next().unwrap_or_default(), symbol.line.unwrap_or(0))
}

/// Returns the live block around an address.
pub async fn block(Path(address): Path<String>) -> Result<String, StatusCode> {
    let address = usize::from_str_radix(address.trim_start_matches("0x"), 16).map_err(|_| StatusCode::BAD_REQUEST)?;
    let block = Ledger::get().block_at(std::ptr::without_provenance::<u8>(address)).ok_or(StatusCode::NOT_FOUND)?;
    Ok(block.to_string())
}
