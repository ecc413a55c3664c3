//! dev
fn main() {
    let server = heapledger_serve::Server::start(heapledger_serve::Options { port: 8123, token: Some("t".into()) }).unwrap();
    println!("{}", server.url());
    std::thread::sleep(std::time::Duration::from_secs(3000));
}
