#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A load generator: load.py SHOP-URL STOCK-URL. One purchase in a hundred has a coupon that is slow to check, and every 20 s
somebody takes the inventory. One parcel in twenty is a wholesaler's."""

import contextlib
import random
import sys
import threading
import time
import urllib.error
import urllib.request

WORDS = ["spring", "summer", "autumn", "winter", "sale", "free", "shipping", "member"]
BAD = "memberspecialofferextra" # 2^23 ways to split it, half a second

WHOLESALE = 8000 # items, for which the stock service looks at 32 million boxes


def coupon():
    if random.random() < 0.01:
        return BAD + "!"
    return "-".join(random.sample(WORDS, 2))


def buy(shop):
    while True:
        try:
            urllib.request.urlopen(f"{shop}/checkout?coupon={coupon()}", timeout=60).read()
        except (urllib.error.URLError, OSError) as e:
            print(f"load: {e}", file=sys.stderr)
            time.sleep(1)
        time.sleep(random.expovariate(8))


def count(stock):
    while True:
        time.sleep(20)
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"{stock}/inventory", timeout=60).read()


def pack(stock):
    while True:
        items = WHOLESALE if random.random() < 0.05 else random.randint(1, 30)
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"{stock}/parcel?items={items}", timeout=60).read()
        time.sleep(random.expovariate(10))


if __name__ == "__main__":
    threading.Thread(target=count, args=[sys.argv[2]], daemon=True).start()
    threading.Thread(target=pack, args=[sys.argv[2]], daemon=True).start()
    for _ in range(4):
        threading.Thread(target=buy, args=[sys.argv[1]], daemon=True).start()
    threading.Event().wait()
