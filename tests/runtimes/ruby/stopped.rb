# SPDX-License-Identifier: Apache-2.0
# Threads that stay at one place each, at the end of different chains. For each line of standard input, prints
# Thread#backtrace of all of them as a line of JSON.
require "json"

def spin
  nil while true
end

class Worker
  def self.start(name)
    new.public_send(name)
  end

  define_method(:by_block) { |x = 1| [1].each { spin } }

  def in_rescue
    raise "any"
  rescue RuntimeError
    spin
  end

  def in_ensure
    yield
  ensure
    spin
  end

  def by_ensure
    catch(:out) { in_ensure { throw :out } }
  end

  def by_sort
    [3, 1, 2].sort_by { |x| spin }
  end

  def by_fiber
    Fiber.new { { a: 1 }.each_pair { spin } }.resume
  end

  def by_enumerator
    Enumerator.new { |y| [1].each_slice(1) { spin } }.next
  end

  def by_text
    instance_eval "1.then { spin }", "text.rb", 7
  end

  def <=>(other)
    spin
  end

  include Comparable

  def by_compare
    clamp(self, self)
  end
end

NAMES = Worker.public_instance_methods(false).grep(/\A(by|in_rescue)/)
threads = NAMES.map { |name| Thread.new { Worker.start(name) } }
puts "ready"
$stdout.flush
while $stdin.gets
  puts JSON.generate(threads.map(&:backtrace))
  $stdout.flush
end
