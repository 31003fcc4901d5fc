-- SPDX-License-Identifier: Apache-2.0
-- The program that test_lua.py and test_luajit.py profile: known chains through Lua, C and Lua again, and coroutines.
--
-- A line that the test refers to carries a comment `@name`. Runs until it is killed. With the argument "off", LuaJIT
-- compiles nothing.
if arg[1] == "off" then jit.off() end

local function leaf(n) -- @define_leaf
	local x = 0
	for i = 1, n do -- @leaf
		x = x + i * i % 7 -- @leaf
	end
	return x
end

local Class = {}
Class.__index = Class

function Class:method(n)
	local x = leaf(n) -- @method
	return x
end

function Class.static(n)
	local x = Class.method({}, n) -- @static
	return x
end

local proxy = setmetatable({}, {__index = function(_, key) -- @define_index
	local x = Class.static(key) -- @index
	return x
end})

function value() -- @define_value
	local x = proxy[3000] -- @value
	return x
end

local function through_sort()
	table.sort({2, 1}, function(a, b) -- @define_compare @sort
		value() -- @compare
		return a < b
	end) -- @sort
end

local function through_gsub()
	local text = string.gsub("a", "a", function() -- @define_replace @gsub
		value() -- @replace
	end) -- @gsub
	return text
end

local function through_pcall()
	local ok = pcall(value) -- @pcall
	return ok
end

local inner = coroutine.wrap(function() -- @define_inner
	while true do
		value() -- @inner
		coroutine.yield()
	end
end)

local outer = coroutine.create(function() -- @define_outer
	while true do
		inner() -- @outer
		coroutine.yield()
	end
end)

local function through_coroutines()
	coroutine.resume(outer) -- @coroutines
end

local function deep(n)
	if n == 0 then
		value() -- @deepest
		return 0
	end
	return 1 + deep(n - 1) -- @deep
end

local function through_deep()
	deep(40) -- @through_deep
end

local function tail(n) -- @in_tail
	return leaf(n) -- a tail call: this function has no frame then; @in_tail
end

local function through_tail()
	local x = tail(3000) -- @tail
	return x
end

local function main()
	through_sort() -- @main
	through_gsub() -- @main
	through_pcall() -- @main
	through_coroutines() -- @main
	through_deep() -- @main
	through_tail() -- @main
end

io.write("ready\n")
io.flush()
while true do
	main() -- @chunk
end
