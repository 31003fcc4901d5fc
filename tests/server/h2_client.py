# SPDX-License-Identifier: Apache-2.0
"""A small HTTP/2 client for gRPC calls that a correct client would not make. It sends HPACK without Huffman codes and
without a dynamic table, tells the server to use no dynamic table, and decodes the server's headers with the nghttp2
library of curl.
"""

import ctypes
import ctypes.util
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4


class _Nv(ctypes.Structure):
    _fields_ = [("name", ctypes.POINTER(ctypes.c_uint8)), ("value", ctypes.POINTER(ctypes.c_uint8)),
                ("namelen", ctypes.c_size_t), ("valuelen", ctypes.c_size_t), ("flags", ctypes.c_uint8)]


class Inflater:
    """nghttp2's HPACK decoder."""

    def __init__(self):
        self.lib = ctypes.CDLL(ctypes.util.find_library("nghttp2") or "libnghttp2.so.14")
        self.lib.nghttp2_hd_inflate_hd2.restype = ctypes.c_ssize_t
        self.lib.nghttp2_hd_inflate_hd2.argtypes = [
            ctypes.c_void_p, ctypes.POINTER(_Nv), ctypes.POINTER(ctypes.c_int), ctypes.c_char_p, ctypes.c_size_t,
            ctypes.c_int]
        self.lib.nghttp2_hd_inflate_end_headers.argtypes = [ctypes.c_void_p]
        self.state = ctypes.c_void_p()
        assert self.lib.nghttp2_hd_inflate_new(ctypes.byref(self.state)) == 0

    def __call__(self, block):
        out = []
        while True:
            nv, flags = _Nv(), ctypes.c_int(0)
            n = self.lib.nghttp2_hd_inflate_hd2(self.state, ctypes.byref(nv), ctypes.byref(flags), block,
                                                len(block), 1)
            assert n >= 0, n
            block = block[n:]
            if flags.value & 2:
                out.append((bytes(nv.name[:nv.namelen]).decode(), bytes(nv.value[:nv.valuelen]).decode()))
            if flags.value & 1:
                self.lib.nghttp2_hd_inflate_end_headers(self.state)
                return out
            if not block and not flags.value & 2:
                return out


def _string(b, prefix=0x00, bits=7):
    n, limit = len(b), (1 << bits) - 1
    if n < limit:
        return bytes([prefix | n]) + b
    out, n = [prefix | limit], n - limit
    while n >= 128:
        out.append(n % 128 + 128)
        n //= 128
    return bytes(out + [n]) + b


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def request_headers(path, headers=(), plain=False):
    """The header block of a gRPC call; `plain`: without gRPC's content type."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"),
              ("te", "trailers")]
    if not plain:
        fields.append(("content-type", "application/grpc"))
    return b"".join(b"\x00" + _string(k.encode()) + _string(v.encode()) for k, v in [*fields, *headers])


class Call:
    """The answer to a call: HTTP status, gRPC status (None: none), message, body; or the reset code."""

    def __init__(self):
        self.headers, self.body, self.done, self.reset = {}, b"", False, None

    @property
    def http(self):
        return self.headers.get(":status")

    @property
    def status(self):
        return int(self.headers["grpc-status"]) if "grpc-status" in self.headers else None

    @property
    def message(self):
        return self.headers.get("grpc-message", "")


class Connection:
    def __init__(self, port, context=None, timeout=60):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout)
        self.alpn = None
        if context:
            context.set_alpn_protocols(["h2"])
            self.sock = context.wrap_socket(self.sock, server_hostname="localhost")
            self.alpn = self.sock.selected_alpn_protocol()
        self.sock.settimeout(timeout)
        self.next_id, self.calls, self.inflate = 1, {}, Inflater()
        self.window, self.windows, self.initial, self.block = 65535, {}, 65535, b""
        # SETTINGS_HEADER_TABLE_SIZE 0: the server must not use a dynamic table.
        self.sock.sendall(PREFACE)
        self._send(SETTINGS, 0, 0, struct.pack(">HI", 1, 0) + struct.pack(">HI", 4, 1 << 20))

    def close(self):
        self.sock.close()

    def _send(self, kind, flags, stream, payload):
        self.sock.sendall(frame(kind, flags, stream, payload))

    def _read(self, n):
        out = b""
        while len(out) < n:
            chunk = self.sock.recv(n - len(out))
            if not chunk:
                raise EOFError("the server closed the connection")
            out += chunk
        return out

    def _frame(self):
        head = self._read(9)
        n = int.from_bytes(head[:3], "big")
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
        payload = self._read(n)
        call = self.calls.get(stream)
        if kind == SETTINGS and not flags & ACK:
            for i in range(0, n, 6):
                key, value = struct.unpack(">HI", payload[i:i + 6])
                if key == 4:
                    for s in self.windows:
                        self.windows[s] += value - self.initial
                    self.initial = value
            self._send(SETTINGS, ACK, 0, b"")
        elif kind == PING and not flags & ACK:
            self._send(PING, ACK, 0, payload)
        elif kind == WINDOW:
            more = int.from_bytes(payload, "big")
            if stream:
                self.windows[stream] = self.windows.get(stream, self.initial) + more
            else:
                self.window += more
        elif kind in (HEADERS, CONTINUATION) and call:
            self.block += payload
            if flags & END_HEADERS:
                call.headers.update(self.inflate(self.block))
                self.block = b""
        elif kind == DATA and call:
            call.body += payload
        elif kind == RST and call:
            if not call.done:
                call.reset, call.done = int.from_bytes(payload, "big"), True
        if kind in (DATA, HEADERS) and flags & END_STREAM and call:
            call.done = True

    def begin(self, path, body, headers=(), end=True, plain=False):
        """Sends a request unchanged, even without gRPC's frame. Returns the number of the call."""
        stream, self.next_id = self.next_id, self.next_id + 2
        self.calls[stream], self.windows[stream] = Call(), self.initial
        block, first = request_headers(path, headers, plain), True
        while first or block:
            part, block = block[:16384], block[16384:]
            self._send(HEADERS if first else CONTINUATION, 0 if block else END_HEADERS, stream, part)
            first = False
        if body or end:
            self.send(stream, body, end)
        return stream

    def send(self, stream, body, end=False):
        """Sends more of a request."""
        while True:
            n = min(len(body), 16384, self.window, self.windows[stream])
            while body and n <= 0 and not self.calls[stream].done:
                self._frame()
                n = min(len(body), 16384, self.window, self.windows[stream])
            if self.calls[stream].done:
                break
            part, body = body[:n], body[n:]
            self.window -= n
            self.windows[stream] -= n
            self._send(DATA, END_STREAM if end and not body else 0, stream, part)
            if not body:
                break

    def message(self, stream):
        """The next message of a stream's answer, or None: the answer is over."""
        call = self.calls[stream]
        while len(call.body) < 5 or len(call.body) < 5 + int.from_bytes(call.body[1:5], "big"):
            if call.done:
                assert not call.body
                return None
            self._frame()
        end = 5 + int.from_bytes(call.body[1:5], "big")
        out, call.body = call.body[5:end], call.body[end:]
        for window in 0, stream:
            self._send(WINDOW, 0, window, struct.pack(">I", end))
        return out

    def wait(self, stream):
        call = self.calls[stream]
        while not call.done:
            self._frame()
        return call

    def call(self, path, message, compressed=False, headers=()):
        body = bytes([compressed]) + struct.pack(">I", len(message)) + message
        return self.wait(self.begin(path, body, headers))
