"""A client of OAP/1, written from the description of the protocol alone; nothing but Python."""

import json
import socket
import struct

HEADER = struct.Struct(">IHHHH16sHQ")
REQ, RESP, EVENT, START, END = 1, 2, 4, 8, 0x10
HELLO, MAILBOX = 0, 0x0201
MAX_FRAME = 1_048_576


def encode(flags, code, app, tenant, cap, corr, payload):
    """The bytes of a frame; nothing is checked, so that a wrong one can be sent."""
    length = HEADER.size + len(cap) + len(payload)
    head = (length, 1, flags, code, app, tenant.to_bytes(16, "big"), len(cap), corr)
    return HEADER.pack(*head) + cap + payload


def decode(frame):
    """What encode was called with."""
    length, version, flags, code, app, tenant, cap_len, corr = HEADER.unpack_from(frame)
    if length != len(frame) or version != 1 or flags > 0xFF or HEADER.size + cap_len > length:
        raise ValueError(f"not a frame of OAP/1: {frame[:HEADER.size].hex()}")
    body = HEADER.size + cap_len
    tenant = int.from_bytes(tenant, "big")
    return flags, code, app, tenant, frame[HEADER.size : body], corr, frame[body:]


class Client:
    """One connection. Questions are asked and answers taken apart from each other."""

    def __init__(self, address, timeout=20):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout)
        self.stream = self.socket.makefile("rb")
        self.corr = 0
        self.early = {}

    def ask(self, question, app=MAILBOX, flags=REQ, cap=b""):
        """Sends a request and gives the corr_id that its answer will have."""
        self.corr += 1
        payload = json.dumps(question).encode()
        self.socket.sendall(encode(flags, 0, app, 0, cap, self.corr, payload))
        return self.corr

    def frame(self):
        """The next frame, or nothing if the service has closed the connection."""
        length = self.stream.read(4)
        if not length:
            return None
        (size,) = struct.unpack(">I", length)
        if not HEADER.size <= size <= MAX_FRAME:
            raise ValueError(f"a frame of {size} bytes")
        return decode(length + self.stream.read(size - 4))

    def answer(self, corr):
        """Status and body of the answer to this request, whatever comes before it."""
        while corr not in self.early:
            frame = self.frame()
            if frame is None:
                raise ConnectionError(f"closed before request {corr} was answered")
            flags, code, _, _, _, about, payload = frame
            if not flags & RESP or about in self.early:
                raise ValueError(f"flags {flags:#x} about request {about}")
            self.early[about] = code, json.loads(payload)
        return self.early.pop(corr)

    def call(self, question, **how):
        """Asks and waits."""
        return self.answer(self.ask(question, **how))
