//! A small web service with its own ledger, which `/heap` shows: it stores, searches and renders
//! documents. The `tracing` spans of a request are the contexts of the request's allocations.
//!
//! ```text
//! cargo run --release --bin service -- 127.0.0.1:8080 [exact|sampled|off] &
//! cargo run --release --bin load -- 127.0.0.1:8080 20000 16
//! curl 127.0.0.1:8080/heap
//! go tool pprof http://127.0.0.1:8080/debug/pprof/heap
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::routing::{get, put};
use heapledger::profile::{Endpoint, EndpointOptions};
use heapledger::serve;
use serde::Deserialize;
use tracing_subscriber::prelude::*;

mod heap;

#[global_allocator]
static ALLOCATOR: heapledger::Allocator = heapledger::Allocator::system();

/// The documents and what is derived from them.
#[derive(Default)]
struct Library {
    documents: BTreeMap<u32, String>,
    /// The documents that contain a word.
    index: BTreeMap<String, Vec<u32>>,
    /// Rendered pages. Nothing ever removes them.
    rendered: BTreeMap<u32, String>,
}

type Shared = Arc<RwLock<Library>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    heap::start(&std::env::args().nth(2).unwrap_or_else(|| "exact".to_owned()));
    tracing_subscriber::registry().with(heapledger::tracing::layer()).init();
    let library = Shared::default();
    // The path of about:memory is secret, like a password.
    let page = format!("/about-memory/{}", serve::random_token()?);
    let about_memory = serve::PageService::new(serve::PageOptions { base: page.clone(), ..Default::default() })?;
    // For clients on this machine.
    let endpoint = Endpoint::new(EndpointOptions::default());
    let service = Router::new()
        .route("/documents/{id}", put(store).get(render).delete(remove))
        .route("/search", get(search))
        .route("/heap", get(heap::report))
        .route("/heap/block/{address}", get(heap::block))
        .route("/debug/pprof/{*what}", get(move |request: Request| heap::pprof(endpoint.clone(), request)))
        .route_service(&format!("{page}/"), about_memory.clone())
        .route_service(&format!("{page}/{{*rest}}"), about_memory)
        .with_state(library);
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("listening on {}", listener.local_addr()?);
    println!("about:memory at http://{}{page}/", listener.local_addr()?);
    let stop = async { _ = tokio::signal::ctrl_c().await };
    axum::serve(listener, service).with_graceful_shutdown(stop).await?;
    Ok(())
}

#[tracing::instrument(skip_all)]
async fn store(State(library): State<Shared>, Path(id): Path<u32>, text: String) -> StatusCode {
    index(&library, id, &text).await;
    library.write().unwrap().documents.insert(id, text);
    StatusCode::CREATED
}

#[tracing::instrument(skip_all)]
async fn index(library: &Shared, id: u32, text: &str) {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    // Lets other tasks run: the context must be restored afterwards.
    tokio::task::yield_now().await;
    let mut library = library.write().unwrap();
    for word in words {
        let documents = library.index.entry(word).or_default();
        if let Err(at) = documents.binary_search(&id) {
            documents.insert(at, id);
        }
    }
}

#[tracing::instrument(skip_all)]
async fn render(State(library): State<Shared>, Path(id): Path<u32>) -> Result<String, StatusCode> {
    if let Some(page) = library.read().unwrap().rendered.get(&id) {
        return Ok(page.clone());
    }
    let text = library.read().unwrap().documents.get(&id).cloned().ok_or(StatusCode::NOT_FOUND)?;
    let page =
        text.split_whitespace().map(|word| format!("<a href=\"/search?word={word}\">{word}</a> ")).collect::<String>();
    library.write().unwrap().rendered.insert(id, page.clone());
    Ok(page)
}

#[tracing::instrument(skip_all)]
async fn remove(State(library): State<Shared>, Path(id): Path<u32>) -> StatusCode {
    let mut library = library.write().unwrap();
    for documents in library.index.values_mut() {
        documents.retain(|document| *document != id);
    }
    match library.documents.remove(&id) {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::NOT_FOUND,
    }
}

#[derive(Deserialize)]
struct Wanted {
    word: String,
}

#[tracing::instrument(skip_all)]
async fn search(State(library): State<Shared>, Query(wanted): Query<Wanted>) -> String {
    let found = library.read().unwrap().index.get(&wanted.word.to_lowercase()).cloned().unwrap_or_default();
    serde_json::to_string(&found).unwrap_or_default()
}
