// SPDX-License-Identifier: Apache-2.0

//! Requests that go through a pool of threads, with spans published by Datadog's crate:
//! `spans SECONDS THREADS LOG HOW`. HOW is `swap` (a record for each span, which goes with the request
//! from thread to thread) or `update` (the thread's own, written anew). See ../../spans.c.

use libdd_otel_thread_ctx::linux::OwnedThreadContext;
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

struct Request {
    trace: [u8; 16],
    span: [u8; 8],
    stage: u32,
}

fn burn(us: u64, n: u64) {
    let end = Instant::now() + Duration::from_micros(us);
    let mut sink = n;
    while Instant::now() < end {
        for i in 0..200u64 {
            sink = black_box(sink.wrapping_add(i * i));
        }
    }
}

#[inline(never)]
fn work_0() {
    burn(1500, 0);
    black_box(0);
}

#[inline(never)]
fn work_1() {
    burn(1500, 1);
    black_box(1);
}

#[inline(never)]
fn work_2() {
    burn(1500, 2);
    black_box(2);
}

#[inline(never)]
fn work_3() {
    burn(1500, 3);
    black_box(3);
}

#[inline(never)]
fn idle_work() {
    burn(300, 4);
    black_box(4);
}

fn fresh(random: &mut File) -> Request {
    let mut bytes = [0u8; 24];
    random.read_exact(&mut bytes).unwrap();
    Request {
        trace: bytes[..16].try_into().unwrap(),
        span: bytes[16..].try_into().unwrap(),
        stage: 0,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn serve(r: &Request, log: &Mutex<File>, swap: bool) {
    let n = (r.span[7] % 4) as usize;
    if swap {
        let _ = OwnedThreadContext::new(r.trace, r.span, 1, r.span, &[(1, "/pay")]).attach();
    } else {
        OwnedThreadContext::update(r.trace, r.span, 1, r.span, &[(1, "/pay")]);
    }
    [work_0, work_1, work_2, work_3][n]();
    drop(OwnedThreadContext::detach());
    writeln!(log.lock().unwrap(), "{} {} {n} 0", hex(&r.trace), hex(&r.span)).unwrap();
    idle_work();
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let end = Instant::now() + Duration::from_secs_f64(args[1].parse().unwrap());
    let log = Arc::new(Mutex::new(File::create(&args[3]).unwrap()));
    let swap = args[4] == "swap";
    let (put, take) = mpsc::channel();
    let take = Arc::new(Mutex::new(take));
    let threads: Vec<_> = (0..args[2].parse().unwrap())
        .map(|_| {
            let (put, take, log) = (put.clone(), take.clone(), log.clone());
            let mut random = File::open("/dev/urandom").unwrap();
            put.send(fresh(&mut random)).unwrap();
            thread::spawn(move || {
                while Instant::now() < end {
                    let mut r: Request = take.lock().unwrap().recv().unwrap();
                    serve(&r, &log, swap);
                    r.stage += 1;
                    let next = if r.stage == 2 { fresh(&mut random) } else { r };
                    put.send(next).unwrap();
                }
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
}
