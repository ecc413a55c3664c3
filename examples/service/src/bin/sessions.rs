//! A web service with a leak: `sessions ADDRESS`. Each login keeps a session for ever.
//! It does not use Heapledger: it is there to be recorded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};

struct Session {
    user: String,
    token: Vec<u8>,
}

type Sessions = Arc<Mutex<HashMap<u64, Session>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8081".to_owned());
    let sessions = Sessions::default();
    let service = Router::new()
        .route("/login/{user}", post(login))
        .route("/session/{number}", get(session))
        .with_state(sessions.clone());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("listening on {}", listener.local_addr()?);
    let stop = async { _ = tokio::signal::ctrl_c().await };
    axum::serve(listener, service).with_graceful_shutdown(stop).await?;
    // Nothing is freed at the end, so that all sessions are live in the recording.
    println!("{} sessions", sessions.lock().unwrap().len());
    std::process::exit(0)
}

async fn login(State(sessions): State<Sessions>, Path(user): Path<String>) -> StatusCode {
    let session = Session { token: token_of(&user), user };
    let mut sessions = sessions.lock().unwrap();
    let number = sessions.len() as u64;
    sessions.insert(number, session);
    StatusCode::CREATED
}

/// Returns the token that a client shows with each request: a kilobyte.
fn token_of(user: &str) -> Vec<u8> {
    user.bytes().cycle().take(1024).collect()
}

async fn session(State(sessions): State<Sessions>, Path(number): Path<u64>) -> Result<String, StatusCode> {
    let sessions = sessions.lock().unwrap();
    let session = sessions.get(&number).ok_or(StatusCode::NOT_FOUND)?;
    Ok(format!("{} {}\n", session.user, session.token.len()))
}
