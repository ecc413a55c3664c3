//! Fills a server: keys, some of which expire, and clients that subscribe to channels and wait.
//!
//!     load PORT [KEYS]

use std::time::Duration;

use mini_redis::client;

const CHANNELS: usize = 40;

#[tokio::main(flavor = "current_thread")]
async fn main() -> mini_redis::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments.next().ok_or("usage: load PORT [KEYS]")?.parse()?;
    let keys: usize = arguments.next().map_or(Ok(20_000), |keys| keys.parse())?;

    let mut client = client::connect(("127.0.0.1", port)).await?;
    for key in 0..keys {
        // Texts of 40 to 240 bytes; every fourth key expires in an hour.
        let text = "x".repeat(40 + key * 7919 % 200);
        if key % 4 == 0 {
            client.set_expires(&format!("session:{key}"), text.into(), Duration::from_secs(3600)).await?;
        } else {
            client.set(&format!("page:{key}"), text.into()).await?;
        }
    }
    let mut subscribers = Vec::new();
    for channel in 0..CHANNELS {
        let subscriber = client::connect(("127.0.0.1", port)).await?;
        subscribers.push(subscriber.subscribe(vec![format!("channel-{channel}")]).await?);
    }
    println!("{keys} keys, {CHANNELS} channels; waits to be killed");
    std::future::pending::<()>().await;
    Ok(())
}
