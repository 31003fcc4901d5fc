// SPDX-License-Identifier: Apache-2.0

// A program that computes for some seconds and that Pyroscope's SDK for Rust profiles. Arguments: server, name of the
// application, seconds.
use pyroscope::backend::{pprof_backend, BackendConfig, PprofConfig};
use pyroscope::pyroscope::PyroscopeAgentBuilder;
use std::time::{Duration, Instant};

#[inline(never)]
fn burn(end: Instant) -> u64 {
    let mut n = 1u64;
    while Instant::now() < end {
        for i in 0..10_000 {
            n = std::hint::black_box(n.wrapping_mul(31).wrapping_add(i));
        }
    }
    n
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let backend = pprof_backend(PprofConfig::default(), BackendConfig::default());
    let agent = PyroscopeAgentBuilder::new(&args[1], &args[2], 100, "pyroscope-rs", "2.1.5", backend)
        .tags(vec![("env", "test")])
        .build()?
        .start()?;
    println!("{}", burn(Instant::now() + Duration::from_secs_f64(args[3].parse()?)));
    agent.stop()?.shutdown();
    Ok(())
}
