-- SPDX-License-Identifier: Apache-2.0
-- Prints its own traceback, then runs in the innermost function of it until it is killed. With the argument "off",
-- LuaJIT compiles nothing.
if arg[1] == "off" then jit.off() end

local Class = {}
Class.__index = Class

local function spin()
	io.write(debug.traceback(), "\n", "end\n")
	io.flush()
	local x = 0
	while true do
		x = x + 1
	end
end

function Class:method()
	local x = spin()
	return x
end

local sum = setmetatable({}, {__add = function(a)
	local x = Class.method(a)
	return x
end})

local function in_coroutine()
	local x = sum + 1
	return x
end

local function for_each(f)
	for _, v in ipairs({1}) do
		f(v)
	end
end

local function start()
	for_each(function()
		local ok = pcall(in_coroutine)
		return ok
	end)
end

start()
