%% SPDX-License-Identifier: Apache-2.0
%% Processes that spend their time in functions of nif.c: `erl -run nif start KIND`, where KIND is one
%% of normal, dirty_cpu and dirty_io, prints "ready".
-module(nif).
-export([start/1, run/1, normal/1, dirty_cpu/1, dirty_io/1]).
-on_load(init/0).

init() ->
    erlang:load_nif("./nif", 0).

normal(_) -> erlang:nif_error(not_loaded).
dirty_cpu(_) -> erlang:nif_error(not_loaded).
dirty_io(_) -> erlang:nif_error(not_loaded).

start([Kind]) ->
    register(nif_process, spawn(nif, run, [list_to_atom(Kind)])),
    io:format("ready~n"),
    receive stop -> ok end.

run(Kind) ->
    {called, _} = call(Kind),
    run(Kind).

call(normal) -> N = normal(1), {called, N};
call(dirty_cpu) -> N = dirty_cpu(20), {called, N};
call(dirty_io) -> N = dirty_io(20), {called, N}.
