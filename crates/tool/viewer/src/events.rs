//! The events that the page listens to.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::channel::Sender;
use hyper::Error;
use serde_json::json;

use crate::jobs::Jobs;

/// The time between two looks at the files and the memory.
const PERIOD: Duration = Duration::from_secs(1);

/// Sends events until the client is gone: `memory` at first and when it has changed, and
/// `file-changed` with the numbers of files that were changed, replaced or removed.
pub(crate) async fn send(jobs: Arc<Jobs>, mut sender: Sender<Bytes, Error>) {
    let mut files = jobs.answer().files();
    let mut memory = None;
    loop {
        let mut text = String::new();
        let now = jobs.memory();
        if memory.replace(now) != Some(now) {
            event(&mut text, "memory", &json!({"bytes": now.bytes, "bound": now.bound, "resident": now.resident}));
        }
        let states = jobs.answer().files();
        for (file, (before, after)) in files.iter().zip(&states).enumerate() {
            if before != after {
                event(&mut text, "file-changed", &json!({"file": file, "missing": after.0.is_none()}));
            }
        }
        files = states;
        // A comment finds out if the client is gone.
        let text = if text.is_empty() { ":\n\n".to_owned() } else { text };
        if sender.send_data(text.into()).await.is_err() {
            return;
        }
        tokio::time::sleep(PERIOD).await;
    }
}

fn event(text: &mut String, name: &str, data: &serde_json::Value) {
    // Writing to a String cannot fail.
    let _ = write!(text, "event: {name}\ndata: {data}\n\n");
}
