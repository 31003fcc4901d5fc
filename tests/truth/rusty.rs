// SPDX-License-Identifier: Apache-2.0
//! Rust: generic functions, trait objects, iterators, panics that are caught, and a thread.
//! The valid chains are few and written out by hand at the end of main().

use std::arch::asm;
use std::io::Write;
use std::os::raw::c_long;

/* As std::hint::black_box, which Debian 12's compiler (1.63) does not have yet. */
#[inline(always)]
fn black_box<T>(x: T) -> T {
    unsafe { asm!("/* {} */", in(reg) &x, options(nostack, preserves_flags)) };
    x
}

fn burn(n: u64) -> u64 {
    let mut x: u64 = 88172645463325252;
    for _ in 0..n {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x = black_box(x);
    }
    x
}

#[inline(never)]
pub fn leaf(n: u64) -> u64 {
    black_box(burn(n))
}

trait Shape {
    fn work(&self, n: u64) -> u64;
}

struct Square;
struct Circle(u64);

impl Shape for Square {
    #[inline(never)]
    fn work(&self, n: u64) -> u64 {
        black_box(leaf(n)) + 1
    }
}

impl Shape for Circle {
    #[inline(never)]
    fn work(&self, n: u64) -> u64 {
        let frame = black_box([self.0; 40]);
        black_box(leaf(n)) + frame[3]
    }
}

#[inline(never)]
pub fn recurse(depth: u32, n: u64) -> u64 {
    if depth == 0 {
        return black_box(leaf(n)) + 1;
    }
    let frame = black_box([depth; 9]);
    black_box(recurse(depth - 1, n)) + frame[2] as u64
}

#[inline(never)]
pub fn panics(n: u64) -> u64 {
    let r = std::panic::catch_unwind(|| {
        let v: u64 = leaf(n);
        if v != black_box(1) {
            std::panic::resume_unwind(Box::new(v));
        }
        v
    });
    match r {
        Ok(v) => v,
        Err(_) => black_box(leaf(n)) + 1,
    }
}

#[inline(never)]
pub fn shapes(n: u64) -> u64 {
    let all: [Box<dyn Shape>; 2] = [Box::new(Square), Box::new(Circle(n))];
    all.iter().map(|s| black_box(s.work(n))).sum()
}

#[inline(never)]
pub fn in_thread(n: u64) -> u64 {
    black_box(leaf(n)) + 1
}

fn chains() -> Vec<Vec<&'static str>> {
    let mut all = vec![
        vec!["rusty::main", "rusty::panics", "rusty::leaf"],
        vec!["rusty::main", "rusty::shapes", "Square as rusty::Shape>::work", "rusty::leaf"],
        vec!["rusty::main", "rusty::shapes", "Circle as rusty::Shape>::work", "rusty::leaf"],
        vec!["rusty::in_thread", "rusty::leaf"],
    ];
    let mut deep = vec!["rusty::main"];
    for _ in 0..=60 {
        deep.push("rusty::recurse");
    }
    deep.push("rusty::leaf");
    all.push(deep);
    all
}

fn write_chains() {
    let dir = match std::env::var("TRUTH_OUT") {
        Ok(d) => d,
        Err(_) => return,
    };
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    let path = format!("{}/{}.{}", dir, comm.trim_end(), std::process::id());
    let mut f = std::fs::File::create(path).unwrap();
    let mut id = 0;
    for c in chains() {
        let mut parent = 0;
        for name in c {
            id += 1;
            writeln!(f, "{} {} {}", id, parent, name).unwrap();
            parent = id;
        }
    }
}

extern "C" {
    fn clock() -> c_long; // of the process, in microseconds
}

fn main() {
    let ms: c_long = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1000);
    while unsafe { clock() } / 1000 < ms {
        black_box(panics(100000));
        black_box(shapes(100000));
        black_box(recurse(60, 200000));
        std::thread::spawn(|| black_box(in_thread(200000))).join().unwrap();
    }
    write_chains();
}
