# SPDX-License-Identifier: Apache-2.0
# mix compiles an Elixir project of 40 modules.
set -e
mkdir -p /tmp/project/lib && cd /tmp/project
echo 'defmodule Parts.MixProject do
  use Mix.Project
  def project, do: [app: :parts, version: "1.0.0", elixir: "~> 1.0"]
  def application, do: [extra_applications: [:logger]]
end' >mix.exs
for n in $(seq 1 40); do
	{
		echo "defmodule Parts.Part$n do"
		echo "  defstruct [:name, price: $n, tags: []]"
		for f in $(seq 1 12); do
			echo "  @doc \"Function $f\"
  def price$f(%__MODULE__{price: price} = part, list) when is_list(list) do
    list
    |> Enum.map(fn x -> x * price + $f end)
    |> Enum.filter(&(rem(&1, $((f + 1))) == 0))
    |> Enum.reduce(%{}, fn x, acc -> Map.update(acc, x, 1, &(&1 + 1)) end)
    |> then(fn m -> for {k, v} <- m, v > $f, into: [], do: \"#{part.name} #{k}: #{v}\" end)
  end
  def kind$f(part) do
    with %__MODULE__{price: p} when p > $f <- part, {:ok, n} <- Map.fetch(part, :name) do
      cond do
        p > 10 -> {:dear, n}
        p > 5 -> {:fair, n}
        true -> :cheap
      end
    end
  end"
		done
		echo "end"
	} >lib/part"$n".ex
done
export MIX_ENV=prod MIX_HOME=/tmp/mix HEX_OFFLINE=1

exec mix compile
