%% SPDX-License-Identifier: Apache-2.0
%% Erlang processes with known chains of calls, for test_beam.py. `erl -run chains start MODE`
%% prints "ready" and runs until it is killed. In mode spin, the stack of the process in leaf/1 comes
%% before, as erlang:process_info() tells it: a line MODULE:FUNCTION/ARITY FILE LINE for each frame.
%%
%%	spin	a registered process: own recursion, a fun, and functions of the library
%%	bif	a process without a name that spends its time in functions written in C
%%	many	processes that send messages to each other, so that schedulers change between them
-module(chains).
-export([start/1, spin/1, bif/1, outer/2, deep/2, leaf/1, relay/2]).

start([Mode]) ->
    Self = self(),
    case list_to_atom(Mode) of
        spin ->
            Pid = spawn(chains, spin, [Self]),
            register(chains_spin, Pid),
            erlang:system_flag(backtrace_depth, 64),
            tell(Pid);
        bif -> spawn(chains, bif, [Self]);
        many -> ring(64)
    end,
    io:format("ready~n"),
    receive stop -> ok end.

tell(Pid) ->
    case erlang:process_info(Pid, current_stacktrace) of
        {current_stacktrace, [{chains, leaf, 1, _} | _] = Stack} ->
            [io:format("~s:~s/~b ~s ~b~n", [M, F, A, proplists:get_value(file, P, "-"),
                                            proplists:get_value(line, P, 0)])
             || {M, F, A, P} <- Stack];
        _ ->
            tell(Pid)
    end.

spin(Parent) ->
    _ = outer(Parent, 3),
    spin(Parent).

outer(Parent, N) ->
    [R | _] = lists:map(fun(X) -> middle(Parent, X) end, [N]),
    {outer, R}.

middle(Parent, N) ->
    R = deep(N, Parent),
    {middle, R}.

deep(0, _) ->
    R = leaf(200000),
    {deep, R};
deep(N, Parent) ->
    R = deep(N - 1, Parent),
    {deep, R}.

leaf(0) ->
    done;
leaf(N) ->
    leaf(N - 1).

bif(Parent) ->
    {bif, _} = digest(Parent),
    {sort, _} = sorted(Parent),
    bif(Parent).

digest(_) ->
    Sum = erlang:md5(binary:copy(<<"x">>, 1000000)),
    {bif, Sum}.

sorted(_) ->
    List = lists:reverse(lists:seq(1, 20000)),
    Binary = term_to_binary(List),
    Back = binary_to_term(Binary),
    {sort, length(Back)}.

ring(N) ->
    First = self(),
    Last = lists:foldl(fun(I, Next) -> spawn(chains, relay, [Next, I]) end, First, lists:seq(1, N)),
    [Last ! {token, I} || I <- lists:seq(1, 8)],
    spawn(fun() -> pass(Last) end),
    ok.

relay(Next, I) ->
    receive {token, T} -> Next ! {token, T + I - I} end,
    relay(Next, I).

pass(Last) ->
    Last ! {token, 0},
    pass(Last).
