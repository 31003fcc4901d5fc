// SPDX-License-Identifier: Apache-2.0
// Runs a known chain of calls for a second of CPU time. stackalloc makes Mono keep frame pointers.
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;

unsafe class Chains
{
	[MethodImpl(MethodImplOptions.NoInlining)]
	static long Leaf(int n)
	{
		long* x = stackalloc long[n > 0 ? 1 : 2];
		x[0] = 1;
		for (int i = 0; i < n; i++)
			x[0] = x[0] * 31 + i;
		return x[0];
	}

	[MethodImpl(MethodImplOptions.NoInlining)]
	static long Middle(int n)
	{
		long* x = stackalloc long[n > 0 ? 1 : 2];
		x[0] = Leaf(n);
		return x[0] + 1;
	}

	[MethodImpl(MethodImplOptions.NoInlining)]
	static long Outer(int n)
	{
		long* x = stackalloc long[n > 0 ? 1 : 2];
		x[0] = Middle(n);
		return x[0] + 1;
	}

	static void Main()
	{
		var self = Process.GetCurrentProcess();
		long sum = 0;
		Console.WriteLine(self.Id);
		do {
			for (int i = 0; i < 100; i++)
				sum += Outer(100000);
			self.Refresh();
		} while (self.UserProcessorTime.TotalSeconds < 1);
		GC.KeepAlive(sum);
	}
}
