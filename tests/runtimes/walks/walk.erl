%% SPDX-License-Identifier: Apache-2.0
%% main calls outer calls inner, over and over.
-module(walk).
-export([start/0, main/0]).

start() ->
    spawn(walk, main, []),
    io:format("ready~n").

main() ->
    {outer, _} = outer(1),
    main().

outer(N) ->
    M = inner(N, 100000),
    {outer, M}.

inner(N, 0) ->
    N;
inner(N, I) ->
    inner((N * 31 + I) rem 1000003, I - 1).
