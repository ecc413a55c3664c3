//! The page in a web server that the program has anyway.

use std::borrow::Cow;
use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_channel::oneshot;
use heapledger_annotate::{untracked, untracked_thread};
use heapledger_reporters::ReporterRegistration;
use heapledger_web::{Handler, HttpRequest, HttpResponse, Responder, Source};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use tower_service::Service;

use crate::{PageOptions, Program, report};

/// The page as a service of tower, for axum, hyper, and whoever else has those. Clones are the same
/// page.
///
/// It answers what is below [`PageOptions::base`] as the client sent it: axum's `route_service` and
/// `fallback_service` leave the path whole, `nest_service` does not. Nobody but
/// [`PageOptions::hosts`] is answered, by default the loopback. Who knows the path sees the page,
/// so make it [a secret](crate::random_token), or put it behind what the service has for such
/// things.
///
/// Measuring takes as long as the reporters do. It happens in an untracked thread of the page's,
/// one request after the other, as a [`PageServer`](crate::PageServer) does it; no executor is
/// blocked, and what is allocated there is in no ledger.
#[derive(Clone, Debug)]
pub struct PageService {
    handler: Arc<Handler>,
    /// The thread ends when the last of them is dropped.
    jobs: SyncSender<Job>,
    _registration: Arc<ReporterRegistration>,
}

/// More requests than this are not kept waiting.
const WAITING_MAX: usize = 32;

struct Job {
    request_head: QueuedRequest,
    body: Bytes,
    answer: oneshot::Sender<HttpResponse>,
}

/// A request that waits for its turn.
struct QueuedRequest {
    head: http::request::Parts,
    /// HTTP/2 says it in another place.
    host: Option<String>,
}

impl PageService {
    /// This program's page.
    ///
    /// # Errors
    ///
    /// When no thread is to be had.
    pub fn new(options: PageOptions) -> io::Result<PageService> {
        PageService::of(Program { children: true }, options)
    }

    /// The same for a page of something else.
    ///
    /// # Errors
    ///
    /// As [`PageService::new`].
    pub fn of(source: impl Source + 'static, options: PageOptions) -> io::Result<PageService> {
        untracked::scope(|| PageService::begin(source, options))
    }

    fn begin(source: impl Source + 'static, options: PageOptions) -> io::Result<PageService> {
        let handler = Arc::new(Handler::new(source, options));
        let (jobs, waiting) = sync_channel::<Job>(WAITING_MAX);
        let thread_handler = handler.clone();
        untracked_thread::spawn("heapledger-serve", move || {
            for Job { request_head, body, answer } in waiting {
                let answer_it = || request_head.with(&body, |request| thread_handler.answer(request));
                // The panic has been printed; who asked is told by `answer` being dropped.
                if let Ok(response) = catch_unwind(AssertUnwindSafe(answer_it)) {
                    // They may have gone away meanwhile.
                    let _ = answer.send(response);
                }
            }
        })?;
        let registration = Arc::new(report(&handler));
        Ok(PageService { handler, jobs, _registration: registration })
    }

    async fn answer<B>(self, request: http::Request<B>) -> HttpResponse
    where
        B: Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let request_head = QueuedRequest::new(head);
        // Before the body is read: whoever may not ask does not fill our memory either.
        let bytes_max = request_head.with(&[], |request| {
            self.handler.admit(request)?;
            Ok(self.handler.body_bytes_max(request))
        });
        let bytes_max = match bytes_max {
            Ok(bytes_max) => bytes_max,
            Err(response) => return response,
        };
        let body = match Limited::new(TrackedBody(Box::pin(body)), bytes_max).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return HttpResponse::text(413, "the body is too large"),
            Err(error) => return HttpResponse::text(400, format!("the body cannot be read: {error}")),
        };
        let (answer, answered) = oneshot::channel();
        if self.jobs.try_send(Job { request_head, body, answer }).is_err() {
            return HttpResponse::text(503, "too many are asking");
        }
        answered.await.unwrap_or_else(|_| HttpResponse::text(500, "this could not be answered: there was a panic"))
    }
}

impl QueuedRequest {
    fn new(head: http::request::Parts) -> QueuedRequest {
        let host = match head.headers.contains_key(http::header::HOST) {
            true => None,
            false => head.uri.authority().map(ToString::to_string),
        };
        QueuedRequest { head, host }
    }

    fn with<T>(&self, body: &[u8], answer: impl FnOnce(&HttpRequest<'_>) -> T) -> T {
        let said = self.head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let headers: Vec<(&str, &[u8])> = said.chain(self.host.iter().map(|host| ("Host", host.as_bytes()))).collect();
        let target = self.head.uri.path_and_query().map_or("/", |target| target.as_str());
        answer(&HttpRequest { method: self.head.method.as_str(), target, headers: &headers, body })
    }
}

impl<B> Service<http::Request<B>> for PageService
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = http::Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        untracked::scope(|| {
            let service = self.clone();
            Box::pin(async move {
                let mut answer = pin!(async move { Ok(encode(service.answer(request).await)) });
                // Whichever thread of the executor polls it.
                poll_fn(|context| untracked::scope(|| answer.as_mut().poll(context))).await
            })
        })
    }
}

/// The body of a request, which the program's own server reads: what that allocates counts.
struct TrackedBody<B>(Pin<Box<B>>);

impl<B: Body> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        untracked::callback(|| self.0.as_mut().poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

fn encode(response: HttpResponse) -> http::Response<Full<Bytes>> {
    let body = match response.body {
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => bytes.into(),
    };
    let mut encoded = http::Response::new(Full::new(body));
    *encoded.status_mut() = http::StatusCode::from_u16(response.status).unwrap_or_default();
    for (name, value) in response.headers {
        // All that the page says is visible ASCII.
        if let Ok(value) = http::HeaderValue::from_str(&value) {
            encoded.headers_mut().insert(name, value);
        }
    }
    encoded
}
