# SPDX-License-Identifier: Apache-2.0
# A process of Elixir with a known chain of calls: Enum, a comprehension, an anonymous function, a struct's protocol.
# Prints the chain in leaf/1 as chains.erl does, then "ready".
defmodule Chain.Box do
  defstruct value: 0
end

defprotocol Chain.Weigh do
  def weigh(thing)
end

defimpl Chain.Weigh, for: Chain.Box do
  def weigh(box) do
    n = Chain.Deep.leaf(box.value)
    {:box, n}
  end
end

defmodule Chain.Deep do
  def spin do
    _ = outer([200_000])
    spin()
  end

  def outer(list) do
    r = Enum.map(list, fn n -> middle(n) end)
    {:outer, r}
  end

  defp middle(n) do
    r = for x <- [n], do: Chain.Weigh.weigh(%Chain.Box{value: x})
    {:middle, r}
  end

  def leaf(0), do: :done
  def leaf(n), do: leaf(n - 1)
end

defmodule Chain.Tell do
  def tell(pid) do
    case Process.info(pid, :current_stacktrace) do
      {:current_stacktrace, [{Chain.Deep, :leaf, 1, _} | _] = stack} ->
        for {m, f, a, p} <- stack do
          IO.puts("#{m}:#{f}/#{a} #{p[:file] || "-"} #{p[:line] || 0}")
        end

      _ ->
        tell(pid)
    end
  end
end

:erlang.system_flag(:backtrace_depth, 64)
pid = spawn(Chain.Deep, :spin, [])
Process.register(pid, :elixir_spin)
Chain.Tell.tell(pid)
IO.puts("ready")
Process.sleep(:infinity)
