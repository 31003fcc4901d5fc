-- SPDX-License-Identifier: Apache-2.0
-- A page of nginx in Lua: JSON by cjson, a grammar of lpeg with a callback, a sort with a comparison.
local cjson = require "cjson"
local lpeg = require "lpeg"

local parts = {}

local function read_number(text)
	return tonumber(text) or 0
end

local number = lpeg.R("09") ^ 1 / read_number
local list = lpeg.Ct(number * ("," * number) ^ 0)

local function before(a, b)
	return a.price < b.price or (a.price == b.price and a.name < b.name)
end

function parts.check()
	if ngx.var.arg_secret == "wrong" then
		return ngx.exit(403)
	end
end

function parts.filter()
	ngx.arg[1] = ngx.arg[1]:gsub("part", string.upper)
end

local function parse(count)
	local digits = {}
	for i = 1, count do
		digits[i] = tostring(i * 7919 % 1009)
	end
	return list:match(table.concat(digits, ","))
end

function parts.page()
	local made = {}
	for i, price in ipairs(parse(300)) do
		made[i] = {name = "part " .. i, price = price}
	end
	table.sort(made, before)
	local text = cjson.encode({ready = true, parts = cjson.decode(cjson.encode(made))})
	ngx.header.content_type = "application/json"
	ngx.say(text)
end

return parts
