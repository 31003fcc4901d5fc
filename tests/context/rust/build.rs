// SPDX-License-Identifier: Apache-2.0

/// What the crate's variable needs to be found by its name; rustc exports nothing of an executable.
fn main() {
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=otel_thread_ctx_v1");
}
