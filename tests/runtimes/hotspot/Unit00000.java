/* SPDX-License-Identifier: Apache-2.0 */
/* Churn.java defines this class again and again, with other numbers in its names. */
public class Unit00000 implements Churn.Unit {
    public long turn00000(int n) {
        long x = Churn.leaf(n);
        for (int i = 0; i < n; i++)
            x = x * 31 + (i ^ n);
        return x;
    }

    public long run(int n) {
        return turn00000(n) + 1;
    }
}
