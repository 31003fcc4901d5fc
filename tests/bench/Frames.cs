// SPDX-License-Identifier: Apache-2.0
// Burns CPU at the end of $FRAMES frames, as a program or as the startup hook of one.
using System;
using System.Runtime.CompilerServices;

class Frames
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void leaf()
    {
        int x = 1;
        for (int i = 0; ; i = (i + 1) & 0xffff)
            x = (x * 5 + i) & 0xffff;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int level(int n)
    {
        if (n > 1)
            level(n - 1);
        else
            leaf();
        return n;
    }

    public static void Main()
    {
        level(int.Parse(Environment.GetEnvironmentVariable("FRAMES")) - 2);
    }
}

class StartupHook
{
    public static void Initialize()
    {
        Frames.Main();
    }
}
