use super::*;

#[test]
fn the_messages_of_a_process_come_in_order() {
    let session = Session::new().unwrap();
    let environment = session.to_environment(false, false, false);
    let page = Arc::new(crate::session::page(0, Default::default(), None).unwrap());
    let inbox = Arc::new(Inbox::default());
    let broker = Broker::start(session, page, Arc::clone(&inbox), Arc::default(), 256 << 10, None).unwrap();
    drop(environment);
    broker.synchronise();
    assert!(inbox.is_empty());
}
