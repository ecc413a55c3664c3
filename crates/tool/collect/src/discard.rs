//! A session whose events are thrown away, so that the costs of recording can be measured in the
//! programs alone.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use heapledger_core::sample::Rate;
use heapledger_wire::session::SessionPage;

use crate::broker::Broker;
use crate::error::RecordError;
use crate::inbox::{Inbox, Message, NewRing};
use crate::session::{self, Session, Wants};
use crate::shared::Page;

/// The size of a thread's ring in bytes.
const RING_CAPACITY: usize = 1 << 20;

/// A session that grants every request, and empties rings without looking at them. It ends when it
/// is dropped.
#[derive(Debug)]
pub struct DiscardingSession {
    environment: OsString,
    page: Arc<Page>,
    inbox: Arc<Inbox>,
    rings: Vec<NewRing>,
    _broker: Broker,
}

impl DiscardingSession {
    /// Creates a session that records everything, or, if `samples`, one that samples once it is
    /// given a rate.
    ///
    /// # Errors
    ///
    /// Fails if memory, descriptors or threads are short.
    pub fn new(samples: bool) -> Result<DiscardingSession, RecordError> {
        let session = Session::new()?;
        let environment = session.to_environment(Wants { samples, waits: true, ..Wants::default() });
        let page = Arc::new(session::page(0, Rate::EXACT, None)?);
        let inbox = Arc::new(Inbox::default());
        let broker =
            Broker::start(session, Arc::clone(&page), Arc::clone(&inbox), Arc::default(), RING_CAPACITY, None)?;
        Ok(DiscardingSession { environment, page, inbox, rings: Vec::new(), _broker: broker })
    }

    /// Returns the value of
    /// [`HEAPLEDGER_SESSION`](heapledger_wire::session::ENVIRONMENT_VARIABLE) for programs.
    pub fn environment(&self) -> &OsStr {
        &self.environment
    }

    /// Returns the page that programs read the mode and the sampling rate from.
    pub fn page(&self) -> &SessionPage {
        &self.page
    }

    /// Empties all rings. Programs wait if it is not called often enough.
    pub fn discard(&mut self) {
        let mut messages = Vec::new();
        self.inbox.take(&mut messages);
        for message in messages {
            match message {
                Message::Ring(new) => self.rings.push(new),
                Message::Ended { image, .. } => self.rings.retain(|new| new.image != image),
                _ => {}
            }
        }
        for new in &self.rings {
            new.ring.ring().discard();
        }
    }
}
