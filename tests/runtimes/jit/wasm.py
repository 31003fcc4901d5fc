# SPDX-License-Identifier: Apache-2.0
"""wasm.py FOLDER-OF-WASMTIME perfmap|jitdump SECONDS: a chain of WebAssembly functions, which wasmtime compiles."""
import sys
import time

sys.path.insert(0, sys.argv[1])
import wasmtime # noqa: E402

config = wasmtime.Config()
config.profiler = sys.argv[2]
engine = wasmtime.Engine(config)
store = wasmtime.Store(engine)
module = wasmtime.Module(engine, """
(module
  (func $leaf (param $n i32) (result i32) (local $sum i32) (local $i i32)
    (loop $again
      (local.set $sum (i32.add (i32.mul (local.get $sum) (i32.const 31)) (local.get $i)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $again (i32.lt_u (local.get $i) (local.get $n))))
    (local.get $sum))
  (func $middle (param $n i32) (result i32) (i32.add (call $leaf (local.get $n)) (i32.const 1)))
  (func $outer (export "outer") (param $n i32) (result i32) (i32.add (call $middle (local.get $n)) (i32.const 1))))
""")
outer = wasmtime.Instance(store, module, []).exports(store)["outer"]
end = time.process_time() + float(sys.argv[3])
while time.process_time() < end:
    outer(store, 1000000)
