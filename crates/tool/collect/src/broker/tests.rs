use super::*;

#[test]
fn the_messages_of_a_process_come_in_order() {
    let session = Session::new().unwrap();
    let environment = session.to_environment(crate::session::Wants::default());
    let page = Arc::new(crate::session::page(0, Default::default(), None).unwrap());
    let inbox = Arc::new(Inbox::default());
    let broker = Broker::start(session, page, Arc::clone(&inbox), Arc::default(), 256 << 10, None).unwrap();
    drop(environment);
    broker.synchronise();
    assert!(inbox.is_empty());
}

/// A connection that comes by a branch is answered like any other, also after something that is not
/// a socket has come.
#[test]
fn connections_come_by_a_branch() {
    use std::os::fd::OwnedFd;

    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, recv, send, socket, socketpair};

    let session = Session::new().unwrap();
    let environment = session.to_environment(crate::session::Wants::default()).into_string().unwrap();
    let (name, token) = environment.split_once(':').unwrap();
    let name = [heapledger_wire::session::ADDRESS_PREFIX.as_bytes(), name.as_bytes()].concat();
    let page = Arc::new(crate::session::page(0, Default::default(), None).unwrap());
    let broker = Broker::start(session, page, Arc::default(), Arc::default(), 256 << 10, None).unwrap();

    let request = |kind: RequestKind| {
        let mut bytes = [0; REQUEST_LENGTH];
        bytes[..4].copy_from_slice(&heapledger_wire::VERSION.to_ne_bytes());
        bytes[4..8].copy_from_slice(&(kind as u32).to_ne_bytes());
        bytes[8..8 + NAME_LENGTH].copy_from_slice(token.as_bytes());
        bytes
    };
    let branch = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    connect(&branch, &SocketAddrUnix::new_abstract_name(&name).unwrap()).unwrap();
    send(&branch, &request(RequestKind::Branch), SendFlags::empty()).unwrap();
    let pass = |passed: OwnedFd| {
        let fds = [passed.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(&branch, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)
    };
    for _ in 0..3 {
        pass(std::fs::File::open("/dev/null").unwrap().into()).unwrap();
        let (own, sent) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        pass(sent).unwrap();
        send(&own, &request(RequestKind::Probe), SendFlags::empty()).unwrap();
        let mut bytes = [1; ANSWER_LENGTH];
        let (length, _) = recv(&own, &mut bytes[..], RecvFlags::empty()).unwrap();
        assert_eq!((length, Answer::from_bytes(bytes).refused), (ANSWER_LENGTH, 0));
    }
    drop(branch);
    broker.synchronise();
}
