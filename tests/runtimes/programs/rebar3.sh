# SPDX-License-Identifier: Apache-2.0
# rebar3 compiles an Erlang project of 40 modules.
set -e
mkdir -p /tmp/project/src && cd /tmp/project
echo '{erl_opts, [debug_info]}. {deps, []}.' >rebar.config
echo '{application, parts, [{vsn, "1.0.0"}, {modules, []}, {applications, [kernel, stdlib]}]}.' >src/parts.app.src
for n in $(seq 1 40); do
	{
		echo "-module(part$n)."
		echo "-export([all/1])."
		echo "-record(part, {name, price = $n, tags = []})."
		for f in $(seq 1 20); do
			echo "price$f(#part{price = P} = Part, L) when is_list(L) ->
    M = lists:foldl(fun(X, A) -> maps:update_with(X, fun(V) -> V + 1 end, 1, A) end, #{},
                    [X * P + $f || X <- L, X rem $((f + 1)) =:= 0]),
    [{Part#part.name, K, V} || {K, V} <- maps:to_list(M), V > $f].
kind$f(#part{price = P, tags = [{ok, N} | _]}) when P > $f ->
    case P of
        _ when P > 10 -> {dear, N};
        _ when P > 5 -> {fair, N};
        _ -> cheap
    end;
kind$f(_) -> none."
		done
		echo "all(P) -> ["
		for f in $(seq 1 20); do echo "    price$f(P, [1, 2, 3]), kind$f(P),"; done
		echo "    ok]."
	} >src/part"$n".erl
done
export HOME=/tmp TERM=dumb
exec escript /usr/bin/rebar3 compile
