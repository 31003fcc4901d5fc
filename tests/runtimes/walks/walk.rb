# SPDX-License-Identifier: Apache-2.0
# main calls outer calls (sort_by, in C, calls) inner, over and over.

def inner(n)
  1000.times { |i| n = (n * 31) % 1_000_003 + i }
  n
end

def outer
  (0...100).sort_by { |n| inner(n) }
end

def main
  outer while true
end

puts "ready"
$stdout.flush
main
