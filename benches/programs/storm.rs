//! A malloc storm in Rust: each of T threads makes N allocations of 16 to 2,063 bytes through a few
//! generic layers, with a window of 1,000 live blocks. usage: storm THREADS ALLOCATIONS
use std::collections::VecDeque;

const WINDOW: usize = 1000;

fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

trait Make {
    fn make(&self, size: usize) -> Block;
}

enum Block {
    Bytes(Vec<u8>),
    Boxed(Box<[u64]>),
    Text(String),
}

struct Bytes;
struct Boxed;
struct Text;

impl Make for Bytes {
    #[inline(never)]
    fn make(&self, size: usize) -> Block {
        Block::Bytes(Vec::with_capacity(size))
    }
}

impl Make for Boxed {
    #[inline(never)]
    fn make(&self, size: usize) -> Block {
        Block::Boxed(vec![1; size / 8].into_boxed_slice())
    }
}

impl Make for Text {
    #[inline(never)]
    fn make(&self, size: usize) -> Block {
        Block::Text(std::iter::repeat_n('x', size / 16).collect())
    }
}

impl Block {
    fn length(&self) -> usize {
        match self {
            Block::Bytes(bytes) => bytes.capacity(),
            Block::Boxed(words) => words.len() * 8,
            Block::Text(text) => text.len(),
        }
    }
}

#[inline(never)]
fn step(makers: &[Box<dyn Make>], random: u64) -> Block {
    let maker = &makers[random as usize % makers.len()];
    std::hint::black_box(maker.make(16 + (random >> 20) as usize % 2048))
}

fn run(number: u64, allocations: u64) -> usize {
    let makers: Vec<Box<dyn Make>> = vec![Box::new(Bytes), Box::new(Boxed), Box::new(Text)];
    let mut state = 88_172_645_463_325_252 + number * 7919;
    let mut window = VecDeque::with_capacity(WINDOW);
    let mut total = 0;
    for _ in 0..allocations {
        if window.len() == WINDOW {
            total += window.pop_front().map_or(0, |block: Block| block.length());
        }
        window.push_back(step(&makers, next_random(&mut state)));
    }
    total
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>().expect("a number"));
    let threads = arguments.next().unwrap_or(1);
    let allocations = arguments.next().unwrap_or(1_000_000);
    let workers: Vec<_> = (0..threads).map(|number| std::thread::spawn(move || run(number, allocations))).collect();
    let total: usize = workers.into_iter().map(|worker| worker.join().expect("a worker")).sum();
    println!("{total}");
}
