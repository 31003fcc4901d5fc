# SPDX-License-Identifier: Apache-2.0
# Chains of calls through methods, blocks, C functions, fibers and threads. Each chain ends in `leaf`, which records
# Ruby's own backtrace once. Prints the backtraces as one line of JSON, then "ready", and repeats the chains until it
# is killed.
require "json"

KNOWN = {}

def leaf(name)
  KNOWN[name] ||= caller(0)
  i = 0
  i += 1 while i < 20_000
end

class Base
  def initialize(name)
    leaf(name)
  end

  def inherited
    leaf(:super)
  end
end

module Mixed
  def mixed
    [1].each { leaf(:mixed) }
  end
end

class Outer < Base
  include Mixed
  include Comparable

  class Inner
    def self.make
      yield
    end

    def method_missing(name, *args)
      leaf(:missing)
    end

    def respond_to_missing?(*)
      true
    end
  end

  class << self
    def own
      [1].each do
        [2].map do
          [3].each_with_index { leaf(:nested) }
        end
      end
    end
  end

  def inherited
    super
  end

  define_method(:defined) { |x = 1| leaf(x == 1 ? :defined : :defined_other) }

  def <=>(other)
    leaf(:compare)
    0
  end

  def work
    leaf(:symbol)
  end

  def rescues
    raise "any"
  rescue RuntimeError
    leaf(:rescue)
  end

  def ensures
    [1].each { leaf(:raising); raise "any" }
  ensure
    leaf(:ensure)
  end

  def optional(a = 1, b = a, key: b)
    leaf(a == 1 ? :optional : :optional_other)
  end
end

Point = Struct.new(:x, :y) do
  def norm
    leaf(:struct)
  end
end

def deep(n)
  n.zero? ? leaf(:deep) : deep(n - 1)
end

def through_sort
  [3, 1, 2].sort { |a, b| leaf(:sort); a <=> b }
end

def through_array
  Array.new(2) { leaf(:array) }
end

def through_send(object)
  object.send(:public_send, :instance_eval) { leaf(:eval_block) }
end

def through_text
  eval("1.then { leaf(:text) }")
end

def through_fiber
  leaf(:before_fiber)
  fiber = Fiber.new do
    Fiber.yield 1
    [1].each { leaf(:fiber) }
  end
  fiber.resume
  fiber.resume
end

def through_enumerator
  leaf(:before_enumerator)
  e = Enumerator.new { |y| leaf(:enumerator); y << 1 }
  e.next
end

def through_lazy
  (1..2).lazy.map { |x| leaf(:lazy); x }.first(1)
end

def through_hash
  Hash.new { |h, k| leaf(:hash); 1 }[5]
end

def through_catch
  catch(:done) { [1].each { leaf(:catch); throw :done } }
end

def through_procs
  add = lambda { |x| leaf(:lambda) }
  [1].each(&add)
  method(:through_method).to_proc.call
end

def through_method
  "aaa".gsub(/a/) { |s| leaf(:gsub); s }
end

def through_inject
  [1, 2, 3].inject { |a, b| leaf(:inject); a + b }
  3.times { leaf(:times) }
  loop { leaf(:loop); break }
end

LOADED = File.join(__dir__, "loaded.rb")

def everything
  outer = Outer.new(:new)
  outer.inherited
  outer.mixed
  Outer.own
  outer.defined
  outer.defined(2)
  outer < outer
  [outer].each(&:work)
  outer.rescues
  begin
    outer.ensures
  rescue RuntimeError
    leaf(:rescue_outer)
  end
  outer.optional
  outer.optional(2)
  Outer::Inner.make { leaf(:yield) }
  Outer::Inner.new.anything
  Point.new(1, 2).norm
  deep(40)
  through_sort
  through_array
  through_send(outer)
  through_text
  through_fiber
  through_enumerator
  through_lazy
  through_hash
  through_catch
  through_procs
  through_inject
  load LOADED
end

def other_thread
  while true
    i = 0
    (leaf(:thread); i += 1) while i < 5
    sleep 0.01
  end
end

def spin_ractor(n)
  i = 0
  i += 1 while i < n
  caller(0) if n.zero?
end

Thread.new { other_thread }
if defined?(Ractor)
  $VERBOSE = nil
  Warning[:experimental] = false
  ractor = Ractor.new { Ractor.yield(spin_ractor(0)); (spin_ractor(20_000); sleep 0.01) while true }
  KNOWN[:ractor] = ractor.take
end

def announce
  sleep 0.01 until KNOWN[:thread]
  puts JSON.generate(KNOWN)
  puts "ready"
  $stdout.flush
end

announced = false
while true
  everything
  announce unless announced
  announced = true
end
