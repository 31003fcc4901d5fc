# SPDX-License-Identifier: Apache-2.0
# Calls between Ruby and C as fast as possible, so that many samples hit the moments when a call begins or ends. Prints the
# backtraces of all ends of the chain as one line of JSON, then "ready".
require "json"

KNOWN = {}
NUMBERS = Array.new(500) { |i| i }

class Value
  def +(other, by = 1)
    KNOWN[:plus] ||= caller(0)
    self
  end

  def <=>(other)
    KNOWN[:compare] ||= caller(0)
    1
  end

  include Comparable
end

VALUES = Array.new(500) { Value.new }
FIRST = Value.new

def tiny(name, x)
  KNOWN[name] ||= caller(0)
end

def inner
  NUMBERS.each_with_index { |x, i| tiny(:tiny, x) }
  VALUES.inject(FIRST, :+)
  VALUES.each_with_index { |x, i| x > FIRST }
  NUMBERS.sort_by { |x| tiny(:sorted, x); x }
  NUMBERS.each_with_index { |x, i| }
end

def middle
  [1].map { inner }
end

def outer
  [1].each_entry { middle }
end

announced = false
while true
  outer
  unless announced
    puts JSON.generate(KNOWN), "ready"
    $stdout.flush
    announced = true
  end
end
