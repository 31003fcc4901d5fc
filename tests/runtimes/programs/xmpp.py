# SPDX-License-Identifier: Apache-2.0
"""Load for Prosody: two components (XEP-0114) send each other messages, 20 at a time, until the time is over.

    xmpp.py PORT SECONDS
"""
import hashlib
import re
import socket
import sys
import time

HEAD = "<?xml version='1.0'?><stream:stream xmlns='jabber:component:accept' " \
       "xmlns:stream='http://etherx.jabber.org/streams' to='%s'>"


class Component:
    def __init__(self, port, name):
        self.name, self.text = name, ""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.sendall((HEAD % name).encode())
        stream = self.read_until(r"<stream:stream[^>]*id=['\"]([^'\"]+)['\"][^>]*>")[1]
        self.socket.sendall(f"<handshake>{hashlib.sha1((stream + 'secret').encode()).hexdigest()}</handshake>".encode())
        self.read_until(r"<handshake\s*/>|<handshake></handshake>")

    def read_until(self, pattern):
        while not (m := re.search(pattern, self.text, re.S)):
            more = self.socket.recv(65536)
            assert more, self.text
            self.text += more.decode()
        self.text = self.text[m.end():]
        return m

    def send(self, to, numbers):
        self.socket.sendall("".join(
            f"<message from='{self.name}' to='{to}' id='{n}'><body>Part {n} costs {n * 7} &lt;of {n}&gt;</body>"
            f"<thread>parts</thread><price xmlns='urn:parts' currency='EUR'>{n}</price></message>"
            for n in numbers).encode())


def main():
    port, end = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    one, two = (Component(port, f"{name}.localhost") for name in ("one", "two"))
    print("ready", flush=True)
    n = 0
    while time.monotonic() < end:
        for a, b in (one, two), (two, one):
            a.send(b.name, range(n, n + 20))
            for k in range(n, n + 20):
                b.read_until(rf"<message[^>]*id='{k}'.*?</message>")
        n += 20


main()
