# SPDX-License-Identifier: Apache-2.0
# Bundler installs gems that are in the project's vendor/cache, each of which needs the next.
set -e
mkdir -p /tmp/project/vendor/cache && cd /tmp/project
ruby -e 'require "fileutils"
require "rubygems/package"
Gem::DefaultUserInteraction.ui = Gem::SilentUI.new
1.upto(60) do |n|
  folder = "/tmp/gems/#{n}"
  FileUtils.mkdir_p("#{folder}/lib")
  1.upto(20) { |file| File.write("#{folder}/lib/part#{file}.rb", (file..1000).to_a.join("\n")) }
  gem = Gem::Specification.new do |s|
    s.name, s.version, s.summary, s.authors = "part#{n}", "1.#{n}", "a part", ["culprit"]
    s.files = (1..20).map { |file| "lib/part#{file}.rb" }
    s.add_dependency("part#{n + 1}", "~> 1.0") if n < 60
  end
  Dir.chdir(folder) { Gem::Package.build(gem, true, false, "/tmp/project/vendor/cache/part#{n}-1.#{n}.gem") }
end'
echo 'source "https://rubygems.org"
gem "part1"' >Gemfile
export BUNDLE_PATH=/tmp/installed BUNDLE_SILENCE_ROOT_WARNING=1
bundle install --local --quiet
[ -e /tmp/installed/ruby/3.1.0/gems/part60-1.60/lib/part20.rb ]
