# SPDX-License-Identifier: Apache-2.0
"""Python calls Lua, which calls Python, which calls Lua: mixed.py FOLDER-OF-LUPA MODULE"""
import importlib
import sys

sys.path.insert(0, sys.argv[1])
lua = importlib.import_module("lupa." + sys.argv[2]).LuaRuntime()


def between(n):
    return lua.globals().inner(n)


lua.globals().between = between
lua.execute("""
function inner(n)
    local x = 0
    for i = 1, n do
        x = x + i * i % 7
    end
    return x
end

function outer(n)
    local x = between(n)
    return x
end
""")


def main():
    while True:
        lua.globals().outer(100000)


print("ready", flush=True)
main()
