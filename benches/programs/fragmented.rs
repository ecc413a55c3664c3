//! A service that keeps few of the answers that it has made: four threads, each with a table of
//! 200,000 texts of which every tenth remains. Prints glibc's own figures (`mallinfo2`: memory of
//! all arenas, blocks with mappings of their own, chunks in use and free), then `end`, and waits
//! until its stdin is closed.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::{Arc, Barrier};

#[repr(C)]
struct Figures([usize; 10]);

unsafe extern "C" {
    fn mallinfo2() -> Figures;
}

fn main() {
    let (done, end) = (Arc::new(Barrier::new(5)), Arc::new(Barrier::new(5)));
    let threads: Vec<_> = (0..4)
        .map(|thread: usize| {
            let (done, end) = (done.clone(), end.clone());
            std::thread::spawn(move || {
                let mut table: HashMap<usize, String> = (0..200_000).map(|key| (key, "x".repeat(40 + (key * 7 + thread) % 400))).collect();
                table.retain(|key, _| key % 10 == 0);
                done.wait();
                end.wait();
                table.len()
            })
        })
        .collect();
    done.wait();
    let mut text = Vec::with_capacity(256);
    // SAFETY: `mallinfo2` takes no argument and returns ten numbers of the type `size_t`
    // (mallinfo(3)), which is how it is declared above.
    let figures = unsafe { mallinfo2() }.0;
    writeln!(text, "mallinfo2 {} {} {} {}\nend", figures[0], figures[4], figures[7], figures[8]).unwrap();
    std::io::stdout().write_all(&text).unwrap();
    std::io::stdin().read_exact(&mut [0]).unwrap_err();
    end.wait();
    threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), 20_000));
}
