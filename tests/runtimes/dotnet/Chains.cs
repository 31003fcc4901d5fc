// SPDX-License-Identifier: Apache-2.0
// Chains of managed calls that end in a loop. The first line of the output is the runtime's own
// stack trace of the loop, the frames separated by "|".
//
// The file is compiled for an old framework, and runs in any .NET: as a program, or as a startup
// hook (DOTNET_STARTUP_HOOKS) of a program that contains its runtime. CHAIN selects the chain.
using System;
using System.Collections.Generic;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

namespace Demo
{
	static class Chains
	{
		static bool told;
		static int sink;
		static volatile bool forever = true;

		[MethodImpl(MethodImplOptions.NoInlining)]
		internal static int Leaf(int n)
		{
			if (!told) {
				told = true;
				Console.Out.WriteLine(Environment.StackTrace.Replace("\r", "").Replace("\n", "|"));
				Console.Out.Flush();
			}
			int sum = n;
			while (forever)
				for (int i = 0; i < 1000000; i++)
					sum += sum * 31 ^ i;
			return sum;
		}

		// Too small for a frame of its own: a single call.
		[MethodImpl(MethodImplOptions.NoInlining)]
		internal static int Small(int n)
		{
			return Leaf(n) + 1;
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static int Two(int n)
		{
			return Small(n) + Small(n + 1);
		}

		// ---- generics and nested classes ----

		class Outer<T>
		{
			internal class Inner<U>
			{
				[MethodImpl(MethodImplOptions.NoInlining)]
				internal int Run(T t, U u)
				{
					return Other<U>.Go(u) + (t == null ? 1 : 2);
				}
			}
		}

		struct Other<T>
		{
			[MethodImpl(MethodImplOptions.NoInlining)]
			internal static int Go(T t)
			{
				return Small(t.GetHashCode()) + 1;
			}
		}

		static int Generic()
		{
			return new Outer<string>.Inner<int>().Run("x", 1) + 1;
		}

		// ---- code between: ahead of time, native, dynamic, handlers of exceptions ----

		class Slow : IComparer<object>
		{
			public int Compare(object a, object b)
			{
				return Small(1) + 1;
			}
		}

		static int Sort()
		{
			Array.Sort(new object[] {1, 2, 3}, new Slow());
			return 1;
		}

		[UnmanagedFunctionPointer(CallingConvention.Cdecl)]
		delegate int Comparer(IntPtr a, IntPtr b);

		[DllImport("libc.so.6")]
		static extern void qsort(int[] array, UIntPtr n, UIntPtr size, Comparer comparer);

		static int FromNative(IntPtr a, IntPtr b)
		{
			return Small(2) + 1;
		}

		static int Native()
		{
			qsort(new int[] {3, 2, 1}, (UIntPtr)3, (UIntPtr)4, FromNative);
			return 1;
		}

		static int Dynamic()
		{
			var method = new DynamicMethod("Made", typeof(int), new[] {typeof(int)}, typeof(Chains).Module, true);
			var il = method.GetILGenerator();
			il.Emit(OpCodes.Ldarg_0);
			il.Emit(OpCodes.Call, typeof(Chains).GetMethod("Small", System.Reflection.BindingFlags.Static
				| System.Reflection.BindingFlags.NonPublic));
			il.Emit(OpCodes.Ldc_I4_1);
			il.Emit(OpCodes.Add);
			il.Emit(OpCodes.Ret);
			return ((Func<int, int>)method.CreateDelegate(typeof(Func<int, int>)))(1) + 1;
		}

		static int Finally()
		{
			try {
				sink += told ? 1 : 2;
			} finally {
				sink += Two(1);
			}
			return sink;
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static void Throw()
		{
			throw new InvalidOperationException("expected");
		}

		static int Catch()
		{
			try {
				Throw();
			} catch (InvalidOperationException) {
				sink += Two(1);
			}
			return sink;
		}

		static int Lambda()
		{
			int extra = told ? 1 : 2;
			Func<int, int> f = n => Two(n) + extra;

			return f(1) + 1;
		}

		static int Deep(int n)
		{
			return n == 0 ? Two(n) + 1 : Deep(n - 1) + 1;
		}

		static int OnThread()
		{
			var thread = new Thread(() => sink += Two(1));

			thread.Start();
			thread.Join();
			return 1;
		}

		internal static void Run(string name)
		{
			switch (name) {
			case "two": Two(1); break;
			case "generic": Generic(); break;
			case "sort": Sort(); break;
			case "native": Native(); break;
			case "dynamic": Dynamic(); break;
			case "finally": Finally(); break;
			case "catch": Catch(); break;
			case "lambda": Lambda(); break;
			case "deep": Deep(40); break;
			case "thread": OnThread(); break;
			default: throw new ArgumentException(name);
			}
		}

		static void Main(string[] args)
		{
			Run(args[0]);
		}
	}
}

class StartupHook
{
	public static void Initialize()
	{
		Demo.Chains.Run(Environment.GetEnvironmentVariable("CHAIN"));
	}
}
