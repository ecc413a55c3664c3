//! The broker: a thread that answers programs and threads that introduce themselves, and notices
//! when processes end.
//!
//! It never waits for a client: a client that connects and does not send its request, or does not
//! take the answer, is dropped. A ring is in the collector's inbox before its producer has it.

mod branches;

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use heapledger_core::allocator::{AllocatorKind, AllocatorVersion};
use heapledger_core::arch;
use heapledger_recording::{ImageEndReason, ImageId, ImageOrigin};
use heapledger_wire::event::units;
use heapledger_wire::session::{
    ANSWER_LENGTH, Answer, ENTRIES_UNKNOWN, NAME_LENGTH, PLAN_PENDING, REQUEST_LENGTH, Request, RequestKind,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    recvmsg, sendmsg,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use self::branches::Branches;
use crate::error::RecordError;
use crate::exiting::Exiting;
use crate::follow::Follow;
use crate::inbox::{Inbox, Message, NewFork, NewImage, NewRing};
use crate::module_table::{self, Kept};
use crate::proc_maps;
use crate::process::{self, Description};
use crate::redirection::{self, Made};
use crate::session::Session;
use crate::shared::{Page, Pool, SharedRing};
use crate::unix;

/// The maximum number of connections without a request; a further one displaces the oldest.
const CLIENTS_MAX: usize = 256;
/// The time after which a connection without a request is dropped.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);
/// The distance of answers that say that a plan is being made. A program waits for each one for
/// 30 s.
const PENDING_EVERY: Duration = Duration::from_secs(5);
/// The maximum number of ended processes whose exit status is outstanding.
const ENDED_MAX: usize = 256;
/// The time to wait for the exit status of an ended process; its parent may be slow to reap it.
const ENDED_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of processes up to which rings are pooled: the pool has a descriptor for each ring.
const POOLING_PROCESSES_MAX: usize = 128;

/// The size of a common ring in bytes. An event has at most 8 KiB.
const COMMON_CAPACITY: usize = 32 << 10;
/// The size of the smallest ring in bytes, for programs with many threads.
pub(crate) const CAPACITY_MIN: usize = 16 << 10;
/// The size of the largest ring that a thread may ask for, in bytes.
pub(crate) const CAPACITY_MAX: usize = 64 << 20;

/// A handle of the broker's thread.
#[derive(Debug)]
pub(crate) struct Broker {
    /// The channel for requests to be notified when everything has been handled.
    orders: Sender<Sender<()>>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Broker {
    pub(crate) fn start(
        session: Session,
        page: Arc<Page>,
        inbox: Arc<Inbox>,
        pool: Arc<Pool>,
        ring_capacity: usize,
        follow: Option<Arc<Follow>>,
    ) -> Result<Broker, RecordError> {
        let failed = "the broker's thread";
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags).map_err(RecordError::session(failed))?);
        let (orders, receiver) = channel();
        let state = State {
            session,
            page,
            inbox,
            pool,
            ring_capacity,
            follow,
            orders: receiver,
            wake: Arc::clone(&wake),
            clients: Vec::new(),
            branches: Branches::default(),
            processes: HashMap::new(),
            images: Vec::new(),
            ended: Vec::new(),
        };
        let thread = std::thread::Builder::new().name("broker".into()).spawn(move || state.run());
        Ok(Broker { orders, wake, thread: Some(thread.map_err(RecordError::session(failed))?) })
    }

    fn wake(&self) {
        // Fails only if the counter is full, which wakes the thread as well.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }

    /// Waits until everything that has happened so far is in the inbox.
    pub(crate) fn synchronise(&self) {
        let (answer, done) = channel();
        // An error means that the thread has panicked, so there is nothing to wait for.
        let _ = self.orders.send(answer);
        self.wake();
        let _ = done.recv();
    }
}

impl Drop for Broker {
    /// Ends the thread, and with it the socket. Outstanding exit statuses are asked for once more.
    fn drop(&mut self) {
        let (nothing, _) = channel();
        self.orders = nothing;
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct State {
    session: Session,
    page: Arc<Page>,
    inbox: Arc<Inbox>,
    pool: Arc<Pool>,
    ring_capacity: usize,
    /// The means to follow programs, if they are followed.
    follow: Option<Arc<Follow>>,
    orders: Receiver<Sender<()>>,
    wake: Arc<OwnedFd>,
    clients: Vec<Client>,
    branches: Branches,
    /// The running processes, by pid.
    processes: HashMap<u32, Process>,
    /// The images, indexed by their ids.
    images: Vec<Image>,
    ended: Vec<Ended>,
}

struct Client {
    connection: OwnedFd,
    since: Instant,
}

struct Process {
    pidfd: OwnedFd,
    image: ImageId,
}

struct Image {
    rings: u32,
    is_running: bool,
}

/// A process that has ended, and whose exit status is outstanding.
struct Ended {
    pidfd: OwnedFd,
    image: ImageId,
    since: Instant,
}

impl State {
    fn run(mut self) {
        loop {
            self.iterate(self.timeout());
            loop {
                match self.orders.try_recv() {
                    Ok(answer) => {
                        self.iterate(Some(Duration::ZERO));
                        // The requester may be gone.
                        let _ = answer.send(());
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        self.ask_for_exits(Duration::ZERO);
                        return;
                    }
                }
            }
        }
    }

    /// Returns how long to wait if nothing happens.
    fn timeout(&self) -> Option<Duration> {
        let clients = self.clients.iter().map(|client| CLIENT_TIMEOUT.saturating_sub(client.since.elapsed()));
        // An exit status appears when the parent waits, usually at once: ask less and less often.
        let ended = self.ended.iter().map(|ended| ended.since.elapsed());
        clients.chain(ended).min().map(|timeout| timeout.max(Duration::from_millis(5)))
    }

    /// Waits for events, and handles them.
    fn iterate(&mut self, timeout: Option<Duration>) {
        let ready = self.wait(timeout);
        // A client waits for its answer as long as other clients get theirs.
        self.page.beat_of_broker();
        // Ends are handled before requests: the pid of an ended process may belong to another by
        // now.
        self.processes_ended(ready.processes);
        self.serve_clients(&ready.clients);
        for connection in self.branches.take(&ready.branches) {
            self.serve_new(connection);
        }
        if ready.listener {
            self.accept();
        }
        self.ask_for_exits(ENDED_TIMEOUT);
    }

    fn wait(&self, timeout: Option<Duration>) -> Ready {
        let fixed = [self.wake.as_fd()];
        let listeners = self.session.listeners();
        let clients = self.clients.iter().map(|client| client.connection.as_fd());
        let processes = self.processes.values().map(|process| process.pidfd.as_fd());
        let mut polled: Vec<PollFd<'_>> = fixed
            .into_iter()
            .chain(listeners)
            .chain(clients)
            .chain(self.branches.fds())
            .chain(processes)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = timeout
            .map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) });
        // If the call is interrupted, or short of memory, nothing is ready, and the next iteration
        // asks again.
        let _ = poll(&mut polled, timeout.as_ref());
        // Without effect if nobody has woken the thread.
        let _ = rustix::io::read(&*self.wake, &mut [0_u8; 8]);
        let mut ready = polled.iter().map(|entry| !entry.revents().is_empty());
        let _ = ready.next();
        Ready {
            listener: ready.by_ref().take(self.session.listeners().count()).filter(|is_ready| *is_ready).count() > 0,
            clients: ready.by_ref().take(self.clients.len()).collect(),
            branches: ready.by_ref().take(self.branches.len()).collect(),
            processes: self.processes.keys().zip(ready).filter(|(_, ready)| *ready).map(|(&pid, _)| pid).collect(),
        }
    }

    fn processes_ended(&mut self, pids: Vec<u32>) {
        for pid in pids {
            self.process_ended(pid);
        }
    }

    fn process_ended(&mut self, pid: u32) {
        let Some(process) = self.processes.remove(&pid) else { return };
        self.image_ended(process.image, ImageEndReason::Exit);
        if self.ended.len() == ENDED_MAX {
            let oldest = self.ended.remove(0);
            self.inbox.post([Message::Exit { image: oldest.image, exit: None }]);
        }
        self.ended.push(Ended { pidfd: process.pidfd, image: process.image, since: Instant::now() });
        crate::command::wake(&self.page);
    }

    fn image_ended(&mut self, image: ImageId, reason: ImageEndReason) {
        if let Some(state) = self.images.get_mut(image.0 as usize) {
            state.is_running = false;
        }
        self.inbox.post([Message::Ended { image, reason, stamp: units(arch::ticks()) }]);
    }

    fn ask_for_exits(&mut self, timeout: Duration) {
        let inbox = &self.inbox;
        self.ended.retain(|ended| {
            let exit = unix::exit_of(ended.pidfd.as_fd());
            let settled = exit.is_some() || ended.since.elapsed() >= timeout;
            if settled {
                inbox.post([Message::Exit { image: ended.image, exit }]);
            }
            !settled
        });
    }

    fn accept(&mut self) {
        let mut connections = Vec::new();
        for listener in self.session.listeners() {
            loop {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                match rustix::net::accept_with(listener, flags) {
                    Ok(connection) => connections.push(connection),
                    Err(Errno::CONNABORTED | Errno::INTR) => {}
                    // Nobody else is waiting, or there are no descriptors: then clients stay in the
                    // backlog.
                    Err(_) => break,
                }
            }
        }
        connections.into_iter().for_each(|connection| self.serve_new(connection));
    }

    /// Serves a client that has just connected.
    fn serve_new(&mut self, connection: OwnedFd) {
        if self.clients.len() == CLIENTS_MAX {
            self.clients.remove(0);
        }
        // A client sends its request right after connecting, so it may be there by now.
        if !self.serve(&connection) {
            self.clients.push(Client { connection, since: Instant::now() });
        }
    }

    fn serve_clients(&mut self, ready: &[bool]) {
        let mut ready = ready.iter();
        for client in std::mem::take(&mut self.clients) {
            let is_ready = ready.next().copied().unwrap_or(false);
            let is_done = is_ready && self.serve(&client.connection);
            if !is_done && client.since.elapsed() < CLIENT_TIMEOUT {
                self.clients.push(client);
            }
        }
    }

    /// Reads a request and answers it. Returns false if the request is not there yet.
    fn serve(&mut self, connection: &OwnedFd) -> bool {
        let mut bytes = [0_u8; REQUEST_LENGTH];
        let mut no_descriptors = RecvAncillaryBuffer::default();
        let received = recvmsg(
            connection,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut no_descriptors,
            RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
        );
        let message = match received {
            Ok(message) => message,
            Err(Errno::AGAIN | Errno::INTR) => return false,
            Err(_) => return true,
        };
        if message.bytes != REQUEST_LENGTH || message.flags.contains(ReturnFlags::TRUNC) {
            return true;
        }
        let request = Request::from_bytes(bytes);
        if !is_equal(&request.token, &self.session.token) {
            return true;
        }
        let is_for_plan =
            [RequestKind::Entries, RequestKind::LaterEntries].map(|kind| kind as u32).contains(&request.kind);
        let is_from_outside = request.kind == RequestKind::LaterEntries as u32 && request.image != 0;
        if request.version == heapledger_wire::VERSION && is_from_outside {
            self.redirect_opened(connection);
            return true;
        }
        if request.version == heapledger_wire::VERSION && is_for_plan {
            self.send_plan(request, connection);
            return true;
        }
        if request.version == heapledger_wire::VERSION && request.kind == RequestKind::Modules as u32 {
            self.send_modules(&request, connection);
            return true;
        }
        if request.version == heapledger_wire::VERSION && request.kind == RequestKind::Follow as u32 {
            // Otherwise the connection is closed.
            if let (Some(follow), Some((pid, _)), Ok(connection)) =
                (&self.follow, self.peer(connection.as_fd()), connection.try_clone())
            {
                Arc::clone(follow).answer(pid, &request, connection, send);
            }
            return true;
        }
        if request.version == heapledger_wire::VERSION && request.kind == RequestKind::Exit as u32 {
            self.note_exiting(&request, connection);
            return true;
        }
        if request.version == heapledger_wire::VERSION && request.kind == RequestKind::Branch as u32 {
            if let Ok(kept) = connection.try_clone() {
                self.branches.add(kept);
            }
            return true;
        }
        match self.grant(&request, connection.as_fd()) {
            Some((answer, descriptors)) => send(connection, answer, &descriptors),
            None => send(connection, Answer { refused: 1, image: 0, common_length: 0, ring_length: 0 }, &[]),
        }
        true
    }

    /// Sends the plan by which a process redirects its entries. Another thread makes it: the first
    /// program with a large file takes a while, and others wait for the broker.
    fn send_plan(&self, request: Request, connection: &OwnedFd) {
        let unknown = Answer { refused: 0, image: 0, common_length: 0, ring_length: ENTRIES_UNKNOWN };
        let Some((pid, _)) = self.peer(connection.as_fd()) else { return };
        let Ok(answered) = connection.try_clone() else { return send(connection, unknown, &[]) };
        send(connection, Answer { image: PLAN_PENDING, ..unknown }, &[]);
        let make = move || {
            let made = while_telling(&answered, Answer { image: PLAN_PENDING, ..unknown }, || {
                match request.kind == RequestKind::LaterEntries as u32 {
                    true => redirection::plan_later(pid, request.thunk, &request.modules),
                    false => redirection::plan(pid, request.thunk),
                }
            });
            let answer = Answer { image: made.with_allocator, ring_length: made.entries, ..unknown };
            match made.file {
                Some(plan) => send(&answered, Answer { common_length: plan.length as u64, ..answer }, &[plan.fd]),
                None => send(&answered, answer, &[]),
            }
        };
        if std::thread::Builder::new().name("entries".into()).spawn(make).is_err() {
            send(connection, unknown, &[]);
        }
    }

    /// Redirects the allocators of modules that a process has opened, from outside, and answers
    /// when that is done. Another thread does it, as for a plan.
    fn redirect_opened(&self, connection: &OwnedFd) {
        let done = Answer { refused: 0, image: 0, common_length: 0, ring_length: 0 };
        let (Some((pid, _)), Some(follow), Ok(answered)) =
            (self.peer(connection.as_fd()), self.follow.clone(), connection.try_clone())
        else {
            return send(connection, done, &[]);
        };
        let image = self.processes.get(&pid).map(|process| process.image);
        let inbox = Arc::clone(&self.inbox);
        send(connection, Answer { image: PLAN_PENDING, ..done }, &[]);
        let redirect = move || {
            let made = while_telling(&answered, Answer { image: PLAN_PENDING, ..done }, || Made {
                entries: follow.redirect_opened(pid),
                ..Made::default()
            });
            if let Some(image) = image.filter(|_| made.entries != 0) {
                inbox.post([Message::NotRedirected { image, stamp: units(arch::ticks()) }]);
            }
            send(&answered, done, &[]);
        };
        if std::thread::Builder::new().name("opened".into()).spawn(redirect).is_err() {
            send(connection, done, &[]);
        }
    }

    /// Has the collector make a snapshot of a process that is about to exit. The process waits
    /// until the connection is closed.
    fn note_exiting(&self, request: &Request, connection: &OwnedFd) {
        let (Some((pid, _)), Ok(connection)) = (self.peer(connection.as_fd()), connection.try_clone()) else { return };
        let (stamp, since) = (units(arch::ticks()), Instant::now());
        let wait = Duration::from_nanos(request.capacity);
        self.inbox.post([Message::Exiting(Exiting { pid, stamp, connection, since, wait })]);
        crate::command::wake(&self.page);
    }

    /// Sends the table of a process's modules. Another thread makes it, as for a plan.
    fn send_modules(&self, request: &Request, connection: &OwnedFd) {
        let none = Answer { refused: 0, image: 0, common_length: 0, ring_length: 0 };
        let (Some((pid, _)), Ok(answered)) = (self.peer(connection.as_fd()), connection.try_clone()) else {
            return send(connection, none, &[]);
        };
        let (address, kept) = (request.thunk, if request.image == 0 { Kept::All } else { Kept::NeverUnloaded });
        send(connection, Answer { image: PLAN_PENDING, ..none }, &[]);
        let make = move || match module_table::of_process(pid, address, kept) {
            Some(table) => send(&answered, Answer { common_length: table.length as u64, ..none }, &[table.fd]),
            None => send(&answered, none, &[]),
        };
        if std::thread::Builder::new().name("modules".into()).spawn(make).is_err() {
            send(connection, none, &[]);
        }
    }

    /// Notes that an image has entries that were to be redirected and were not. If their number is
    /// not known, another thread finds out if there are any at all.
    fn note_entries_missed(&self, image: ImageId, pid: u32, missed: u64) {
        let message = Message::NotRedirected { image, stamp: units(arch::ticks()) };
        match missed {
            0 => {}
            ENTRIES_UNKNOWN => {
                let inbox = Arc::clone(&self.inbox);
                let look = move || match redirection::entries_of(pid) {
                    0 => {}
                    _ => inbox.post([message]),
                };
                // Without a thread, nobody learns of it: the machine has other troubles.
                let _ = std::thread::Builder::new().name("entries".into()).spawn(look);
            }
            _ => self.inbox.post([message]),
        }
    }

    /// Handles a request with the right token. Returns `None` if it is refused.
    fn grant(&mut self, request: &Request, connection: BorrowedFd<'_>) -> Option<(Answer, Vec<OwnedFd>)> {
        if request.version != heapledger_wire::VERSION {
            return None;
        }
        match request.kind {
            kind if kind == RequestKind::Image as u32 => self.grant_image(request, ImageOrigin::Exec, connection),
            kind if kind == RequestKind::Fork as u32 => self.grant_image(request, ImageOrigin::Fork, connection),
            kind if kind == RequestKind::Attach as u32 => self.grant_image(request, ImageOrigin::Attached, connection),
            kind if kind == RequestKind::Ring as u32 => self.grant_ring(request),
            kind if kind == RequestKind::Probe as u32 => {
                Some((Answer { refused: 0, image: 0, common_length: 0, ring_length: 0 }, Vec::new()))
            }
            kind if kind == RequestKind::Decline as u32 => {
                self.inbox.post([Message::Declined { image: ImageId(request.image), stamp: units(arch::ticks()) }]);
                self.refuse()
            }
            _ => None,
        }
    }

    fn grant_image(
        &mut self,
        request: &Request,
        how: ImageOrigin,
        connection: BorrowedFd<'_>,
    ) -> Option<(Answer, Vec<OwnedFd>)> {
        let stamp = units(arch::ticks());
        let is_fork = how == ImageOrigin::Fork;
        // Without a peer the requester is dead, so no process goes unrecorded.
        let (pid, pidfd) = self.peer(connection)?;
        // Processes that have ended by now ended before this image does anything.
        let ready = self.wait(Some(Duration::ZERO));
        self.processes_ended(ready.processes);
        if is_fork && self.images.get(request.image as usize).is_none() {
            return None;
        }
        let page = self.page.fd().try_clone_to_owned().ok().or_else(|| self.refuse())?;
        let common = self.first_ring(COMMON_CAPACITY).or_else(|| self.refuse())?;
        let own = self.first_ring(self.capacity(0, request.capacity)).or_else(|| self.refuse())?;
        let ((common, common_fd), (own, own_fd)) = (common, own);
        let answer = Answer {
            refused: 0,
            image: self.images.len() as u32,
            common_length: common.length() as u64,
            ring_length: own.length() as u64,
        };

        let description = Description::of(pid);
        self.inbox.roots.note(pid);
        let image = ImageId(answer.image);
        let before = self.processes.insert(pid, Process { pidfd, image });
        if let Some(before) = &before {
            self.image_ended(before.image, ImageEndReason::Exec);
        }
        let parent_image = if is_fork {
            Some(ImageId(request.image))
        } else {
            let parent = || self.processes.get(&description.parent_pid).map(|process| process.image);
            before.map(|before| before.image).or_else(parent)
        };
        let age = if how == ImageOrigin::Attached { process::age(pid) } else { Duration::ZERO };
        let fork = is_fork.then_some(NewFork {
            parent: ImageId(request.image),
            sequence: request.fork,
            node_base: request.node_base,
        });
        self.images.push(Image { rings: 1, is_running: true });
        let Description { parent_pid, executable, argv } = description;
        let image_message = Message::Image(NewImage {
            image,
            stamp,
            pid,
            parent_pid,
            parent_image,
            how,
            age,
            fork,
            executable,
            argv,
            allocator: AllocatorKind::from_number(request.allocator),
            allocator_version: AllocatorVersion(request.allocator_version),
            // The process waits for the answer: nothing changes meanwhile, if it has one thread.
            identity: process::image_identity(pid),
            regions: self.inbox.keeps_mappings().then(|| proc_maps::read(pid)).flatten(),
        });
        let ring = |ring, is_common| Message::Ring(NewRing { image, ring, is_common, thread: request.thread });
        self.inbox.post([image_message, ring(common, true), ring(own, false)]);
        self.note_entries_missed(image, pid, request.entries_missed);
        // A forked child that has no room for the page works without it: it has its parent's
        // mapping.
        Some((answer, vec![common_fd, own_fd, page]))
    }

    fn grant_ring(&mut self, request: &Request) -> Option<(Answer, Vec<OwnedFd>)> {
        let image = self.images.get(request.image as usize).filter(|image| image.is_running)?;
        let capacity = self.capacity(image.rings, request.capacity);
        let (ring, fd) = SharedRing::new(capacity).ok().or_else(|| self.refuse())?;
        let ring_length = ring.length() as u64;
        if let Some(image) = self.images.get_mut(request.image as usize) {
            image.rings += 1;
        }
        let new = NewRing { image: ImageId(request.image), ring, is_common: false, thread: request.thread };
        self.inbox.post([Message::Ring(new)]);
        Some((Answer { refused: 0, image: request.image, common_length: 0, ring_length }, vec![fd]))
    }

    /// Notes that a process or thread goes unrecorded because resources are short.
    fn refuse<T>(&self) -> Option<T> {
        self.inbox.post([Message::Refused]);
        None
    }

    /// Returns one of the rings that every image needs: from the pool, unless there are so many
    /// processes that the pool would take too many descriptors.
    fn first_ring(&self, capacity: usize) -> Option<(SharedRing, OwnedFd)> {
        if self.processes.len() < POOLING_PROCESSES_MAX {
            self.pool.take(capacity).ok()
        } else {
            SharedRing::new(capacity).ok()
        }
    }

    /// Returns the capacity of an image's next ring; the more rings it has, the smaller they are.
    fn capacity(&self, rings: u32, wanted: u64) -> usize {
        let usual = self.ring_capacity >> (2 * rings.max(1).ilog(16).min(8));
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(CAPACITY_MIN, CAPACITY_MAX);
        usual.max(wanted.next_power_of_two())
    }

    /// Returns the process at the other end of a connection.
    fn peer(&self, connection: BorrowedFd<'_>) -> Option<(u32, OwnedFd)> {
        // A process in another pid namespace has no number here.
        let pid = Pid::from_raw(unix::peer(connection).ok()?.pid.cast_signed())?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // While the connection stands, the pid is still that of the process that made it.
        let mut entry = [PollFd::from_borrowed_fd(connection, PollFlags::IN)];
        poll(&mut entry, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).ok()?;
        let [entry] = &entry;
        entry.revents().is_empty().then_some((pid.as_raw_pid() as u32, pidfd))
    }
}

/// Makes a plan, and sends `pending` every few seconds until it is made. Without another thread for
/// the work, it is sent no more.
fn while_telling(connection: &OwnedFd, pending: Answer, make: impl FnOnce() -> Made + Send) -> Made {
    std::thread::scope(|scope| {
        let (done, made) = channel();
        let work = move || {
            let _ = done.send(make());
        };
        if std::thread::Builder::new().name("plan".into()).spawn_scoped(scope, work).is_err() {
            return Made::unknown();
        }
        loop {
            match made.recv_timeout(PENDING_EVERY) {
                Ok(made) => return made,
                Err(RecvTimeoutError::Timeout) => send(connection, pending, &[]),
                Err(RecvTimeoutError::Disconnected) => return Made::unknown(),
            }
        }
    })
}

/// The result of a poll.
struct Ready {
    listener: bool,
    /// True for each client that is ready, by the index in `clients`.
    clients: Vec<bool>,
    /// The same for the branches.
    branches: Vec<bool>,
    /// The pids of the processes that ended.
    processes: Vec<u32>,
}

/// Compares in constant time, so that the time does not tell how many bytes are right.
fn is_equal(one: &[u8; NAME_LENGTH], other: &[u8; NAME_LENGTH]) -> bool {
    one.iter().zip(other).fold(0, |difference, (one, other)| difference | (one ^ other)) == 0
}

/// Sends an answer without waiting. A new connection has room for it, unless the client misbehaves.
fn send(connection: &OwnedFd, answer: Answer, descriptors: &[OwnedFd]) {
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let bytes: [u8; ANSWER_LENGTH] = answer.to_bytes();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = sendmsg(connection, &[IoSlice::new(&bytes)], &mut control, flags);
}

#[cfg(test)]
mod tests;
