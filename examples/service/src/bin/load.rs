//! Load for the service: `load ADDRESS REQUESTS CONNECTIONS`. Stores, renders, searches and removes
//! documents over connections that stay open, and prints the number and the times of answers by
//! status. `load ADDRESS heap` prints the service's report about its heap.

use std::collections::BTreeMap;
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

type Answers = BTreeMap<u16, u64>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let requests = arguments.next().unwrap_or_else(|| "10000".to_owned());
    if requests == "heap" {
        let mut connection = BufReader::new(TcpStream::connect(address).await?);
        connection.write_all(b"GET /heap HTTP/1.1\r\nhost: x\r\n\r\n").await?;
        let (_, report) = answer(&mut connection).await?;
        print!("{}", String::from_utf8_lossy(&report));
        return Ok(());
    }
    let requests: u64 = requests.parse()?;
    let connections: u64 = arguments.next().map_or(Ok(8), |count| count.parse())?;
    let began = Instant::now();
    let workers: Vec<_> =
        (0..connections).map(|number| tokio::spawn(work(address.clone(), number, requests / connections))).collect();
    let mut answers = Answers::new();
    for worker in workers {
        for (status, count) in worker.await?.map_err(|error| error.to_string())? {
            *answers.entry(status).or_default() += count;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let all: u64 = answers.values().sum();
    println!("{all} answers in {seconds:.2} s, {:.0} a second: {answers:?}", all as f64 / seconds);
    Ok(())
}

async fn work(address: String, number: u64, requests: u64) -> std::io::Result<Answers> {
    let mut connection = BufReader::new(TcpStream::connect(address).await?);
    let mut answers = Answers::new();
    let mut random = 88_172_645_463_325_252 ^ (number + 1) << 20;
    for _ in 0..requests {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let id = random >> 8 & 0x3ff;
        let request = match random & 7 {
            0..=2 => {
                let text: String = (0..64).map(|at| format!("word{} ", random >> (at % 32) & 0xfff)).collect();
                format!("PUT /documents/{id} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{text}", text.len())
            }
            3 | 4 => format!("GET /documents/{id} HTTP/1.1\r\nhost: x\r\n\r\n"),
            5 | 6 => format!("GET /search?word=word{} HTTP/1.1\r\nhost: x\r\n\r\n", random >> 20 & 0xfff),
            _ => format!("DELETE /documents/{id} HTTP/1.1\r\nhost: x\r\n\r\n"),
        };
        connection.write_all(request.as_bytes()).await?;
        *answers.entry(answer(&mut connection).await?.0).or_default() += 1;
    }
    Ok(answers)
}

/// Reads an answer to its end and returns its status and body.
async fn answer(connection: &mut BufReader<TcpStream>) -> std::io::Result<(u16, Vec<u8>)> {
    let (mut line, mut status, mut length) = (String::new(), 0, 0);
    loop {
        line.clear();
        if connection.read_line(&mut line).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let text = line.trim_end().to_ascii_lowercase();
        if text.is_empty() {
            break;
        }
        if let Some(rest) = text.strip_prefix("http/1.1 ") {
            status = rest.get(..3).and_then(|status| status.parse().ok()).unwrap_or(0);
        }
        if let Some(rest) = text.strip_prefix("content-length:") {
            length = rest.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await?;
    Ok((status, body))
}
