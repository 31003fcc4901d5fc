# SPDX-License-Identifier: Apache-2.0
"""Protocol buffers byte by byte, by field numbers, without a schema and without code of culprit."""

import struct


def varint(n):
    out, n = bytearray(), n & (1 << 64) - 1
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def field(number, value):
    """A field by its value's type: int, float (fixed64), text, bytes; of a list one field for each value."""
    if isinstance(value, list):
        return b"".join(field(number, v) for v in value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(**fields):
    """message(_1=VALUE, _2=VALUE…)"""
    return b"".join(field(int(k[1:]), v) for k, v in fields.items())


def read_varint(data, at):
    """Returns the number at data[at], and where it ends."""
    n = shift = 0
    while True:
        n |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return n, at


def decode(data):
    """{number: [values]}; numbers are unsigned, other values bytes."""
    out, at = {}, 0
    while at < len(data):
        key, at = read_varint(data, at)
        if key & 7 == 0:
            value, at = read_varint(data, at)
        elif key & 7 == 1:
            value, at = struct.unpack("<d", data[at:at + 8])[0], at + 8
        else:
            n, at = read_varint(data, at)
            value, at = data[at:at + n], at + n
        out.setdefault(key >> 3, []).append(value)
    return out


def packed(data):
    out, at = [], 0
    while at < len(data):
        n, at = read_varint(data, at)
        out.append(n)
    return out
