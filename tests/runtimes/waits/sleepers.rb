# SPDX-License-Identifier: Apache-2.0
# Threads that sleep on, each in methods of its own. A comment "in NAME" marks the line at which NAME waits.

def nap_inner
  sleep # in nap_inner
end

def nap_outer
  nap_inner # in nap_outer
end

def lock_inner
  Queue.new.pop # in lock_inner
end

def lock_outer
  lock_inner # in lock_outer
end

def main_inner
  sleep 1000 # in main_inner
end

def main_outer
  main_inner # in main_outer
end

Thread.new { nap_outer } # in nap_block
Thread.new { lock_outer } # in lock_block
$stdout.puts "ready"
$stdout.flush
main_outer # in <main>
