//! A program that speaks the recorder's side of the protocol without containing a recorder: the
//! blocks that it "allocates" are only numbers.
#![allow(dead_code, unreachable_pub, reason = "each user needs a part")]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

use heapledger_core::{StackId, arch, sys};
use heapledger_wire::event::{self, Extended, WORDS_MAX, units};
use heapledger_wire::publish::{Producer, WriteError};
use heapledger_wire::ring::Ring;
use heapledger_wire::session::{
    ADDRESS_PREFIX, ANSWER_LENGTH, Answer, ENVIRONMENT_VARIABLE, MODULES_MAX, NAME_LENGTH, PAGE_LENGTH, Request,
    RequestKind, SessionPage,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
};

/// The means to reach a session.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    pub name: [u8; NAME_LENGTH],
    pub token: [u8; NAME_LENGTH],
}

/// An image that has introduced itself.
#[derive(Clone, Copy, Debug)]
pub struct FakeImage {
    pub number: u32,
    pub page: &'static SessionPage,
}

/// A thread with its ring.
pub struct FakeThread {
    pub image: FakeImage,
    pub producer: Producer,
}

impl Hook {
    /// Returns the session that the environment names.
    pub fn from_environment() -> Hook {
        Hook::parse(&std::env::var(ENVIRONMENT_VARIABLE).expect("no session"))
    }

    pub fn parse(value: &str) -> Hook {
        let (name, token) = value.split_once(':').unwrap();
        let digits = |text: &str| text.as_bytes().try_into().unwrap();
        Hook { name: digits(name), token: digits(token) }
    }

    pub fn connect(&self) -> rustix::io::Result<OwnedFd> {
        let address = [ADDRESS_PREFIX.as_bytes(), &self.name].concat();
        let address = SocketAddrUnix::new_abstract_name(&address)?;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        rustix::net::connect(&socket, &address)?;
        Ok(socket)
    }

    pub fn request(&self, kind: RequestKind) -> Request {
        Request {
            version: heapledger_wire::VERSION,
            kind: kind as u32,
            token: self.token,
            image: 0,
            thread: sys::thread_id(),
            fork: 0,
            node_base: 0,
            capacity: 0,
            allocator: 0,
            allocator_version: 0,
            thunk: 0,
            entries_missed: 0,
            modules: [0; MODULES_MAX],
        }
    }

    /// Sends a request and returns the answer; `None` if the connection was closed.
    pub fn ask(&self, request: Request) -> Option<(Answer, Vec<OwnedFd>)> {
        let socket = self.connect().ok()?;
        let bytes = request.to_bytes();
        sendmsg(&socket, &[IoSlice::new(&bytes)], &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL).ok()?;
        let mut bytes = [0; ANSWER_LENGTH];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
        if received.bytes != ANSWER_LENGTH {
            return None;
        }
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        Some((Answer::from_bytes(bytes), descriptors))
    }

    /// Introduces this process, or this part of it, as a new image.
    pub fn introduce(&self, request: Request) -> Option<(FakeThread, FakeThread)> {
        let (answer, descriptors) = self.ask(request)?;
        let [common, own, page] = descriptors.as_slice() else { return None };
        let page = sys::map_shared(page.as_raw_fd(), PAGE_LENGTH).ok()?.cast::<SessionPage>();
        // SAFETY: the pointer is to a session page, which stays mapped for as long as this process
        // lives.
        let page = unsafe { &*page };
        let image = FakeImage { number: answer.image, page };
        let common = FakeThread::new(image, common, answer.common_length);
        let mut own = FakeThread::new(image, own, answer.ring_length);
        own.start("fake").ok()?;
        Some((common, own))
    }

    pub fn image(&self) -> (FakeThread, FakeThread) {
        self.introduce(self.request(RequestKind::Image)).expect("not granted")
    }

    /// Requests a ring for one more thread, the calling one.
    pub fn thread(&self, image: FakeImage, name: &str) -> FakeThread {
        let request = Request { image: image.number, ..self.request(RequestKind::Ring) };
        let (answer, descriptors) = self.ask(request).expect("not granted");
        let mut thread = FakeThread::new(image, &descriptors[0], answer.ring_length);
        thread.start(name).unwrap();
        thread
    }
}

impl FakeThread {
    fn new(image: FakeImage, fd: &OwnedFd, length: u64) -> FakeThread {
        let mapping = sys::map_shared(fd.as_raw_fd(), length as usize).unwrap();
        // SAFETY: the mapping is shared, has this length, and is never unmapped.
        let ring = unsafe { Ring::new(NonNull::new(mapping).unwrap(), length as usize) }.unwrap();
        FakeThread { image, producer: Producer::new(ring) }
    }

    pub fn start(&mut self, name: &str) -> Result<(), WriteError> {
        let mut padded = [0; 16];
        padded[..name.len()].copy_from_slice(name.as_bytes());
        self.extended(&Extended::ThreadStart { thread: sys::thread_id(), name: padded })
    }

    #[inline]
    pub fn put(&mut self, words: &[u64]) -> Result<(), WriteError> {
        self.producer.write(self.image.page, || false, words)
    }

    #[inline]
    fn step(&mut self, ticks: u64) -> Result<u64, WriteError> {
        if let Some(step) = self.producer.step(ticks) {
            return Ok(step);
        }
        self.producer.last = units(ticks);
        self.put(&event::sync(units(ticks)))?;
        Ok(0)
    }

    #[inline]
    pub fn malloc(&mut self, address: u64, size: u64, stack: u32) -> Result<(), WriteError> {
        self.producer.begin();
        let step = self.step(arch::ticks())?;
        self.put(&event::malloc(step, address, size, StackId(stack)))?;
        self.producer.end();
        Ok(())
    }

    #[inline]
    pub fn free(&mut self, address: u64) -> Result<(), WriteError> {
        self.producer.begin();
        let step = self.step(arch::ticks_after_loads())?;
        self.put(&event::free(step, address))?;
        self.producer.end();
        Ok(())
    }

    pub fn extended(&mut self, event: &Extended<'_>) -> Result<(), WriteError> {
        self.producer.begin();
        let mut buffer = [0; WORDS_MAX];
        self.producer.last = units(arch::ticks());
        let words = event::extended(self.producer.last, event, &mut buffer).unwrap();
        self.producer.write(self.image.page, || false, words)?;
        self.producer.end();
        Ok(())
    }
}
