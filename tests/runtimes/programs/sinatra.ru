# SPDX-License-Identifier: Apache-2.0
# A page of Sinatra for Puma: a route with a parameter, a template of ERB, JSON.
require "json"
require "sinatra/base"

class Shop < Sinatra::Base
  set :environment, :production
  set :protection, false
  template(:parts) { "<!doctype html><title>Parts</title><p><%= @parts.size %> parts: <%= @text %>" }

  def prices_of(count)
    (1..count).map { |n| { name: "part #{n}", price: format("%.2f", Math.sqrt(n) * 17 % 1000).to_f } }
  end

  get "/parts/:count" do |count|
    @parts = prices_of(count.to_i).sort_by { |part| [part[:price], part[:name]] }
    @text = JSON.generate(@parts)
    erb :parts
  end
end

run Shop
