# SPDX-License-Identifier: Apache-2.0
"""Load for RabbitMQ: publishes messages with confirmation and fetches them, until the time is over.

    amqp.py PORT SECONDS
"""
import sys
import time

import pika


def main():
    port, end = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    out, back = connection.channel(), connection.channel()
    out.queue_declare("parts", durable=True)
    out.exchange_declare("shop", "topic")
    out.queue_bind("parts", "shop", "parts.#")
    out.confirm_delivery()
    print("ready", flush=True)
    while time.monotonic() < end:
        for n in range(20):
            out.basic_publish("shop", f"parts.{n}", b"part" * 100, pika.BasicProperties(delivery_mode=2))
        for _ in range(20):
            method, _, body = back.basic_get("parts")
            assert body == b"part" * 100
            back.basic_ack(method.delivery_tag)


main()
