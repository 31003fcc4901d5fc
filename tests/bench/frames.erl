%% SPDX-License-Identifier: Apache-2.0
%% Burns CPU at the end of as many frames: erl -noshell -run frames start FRAMES
-module(frames).
-export([start/1]).

start([Frames]) ->
    level(list_to_integer(Frames) - 2),
    ok.

level(N) when N > 1 ->
    level(N - 1) + 1;
level(_) ->
    leaf(1 bsl 50, 1) + 1.

%% It must be able to return: the compiler makes a last call of each call that cannot.
leaf(0, X) ->
    X;
leaf(N, X) ->
    leaf(N - 1, (X * 5 + 1) band 16#ffff).
