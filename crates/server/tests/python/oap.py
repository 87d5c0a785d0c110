"""What a stranger does with OAP/1: the byte vectors, then a running service. A line for each part."""

import faulthandler
import os
import struct

from oap_client import END, HELLO, MAILBOX, REQ, RESP, START, Client, decode, encode

faulthandler.dump_traceback_later(60, exit=True)
ADDRESS = os.environ["OAP_ADDRESS"]
CAPABILITY = os.environ["CAPABILITY"].encode()
VECTORS = {
    "000000360001000100000000000000000000000000000000000000aa000000000000000000"
    "2a7b227561223a2273646b2f302e31227d": (REQ, 0, HELLO, 0xAA, b"", 42, b'{"ua":"sdk/0.1"}'),
    "000000410001000900000064000000000000000000000000000000cc001b00000000000000"
    "636d616361726f6f6e3a73636f70653d726561643a74746c3d363073": (
        (START | REQ, 0, 100, 0xCC, b"macaroon:scope=read:ttl=60s", 99, b"")
    ),
    "000000310001000200c800c8000000000000000000000000000000dd000000000000000000"
    "7b68656c6c6f20776f726c64": (RESP, 200, 200, 0xDD, b"", 123, b"hello world"),
}


def same(found, wanted):
    if found != wanted:
        raise AssertionError(f"{found!r} is not {wanted!r}")


def vectors():
    for text, parts in VECTORS.items():
        same(encode(*parts).hex(), text)
        same(decode(bytes.fromhex(text)), parts)


def started():
    """A connection that has said who it is, with its first request."""
    client = Client(ADDRESS)
    status, limits = client.call({"ua": "stranger/1"}, app=HELLO)
    same((status, limits["max_frame"], limits["versions"]), (200, 1048576, [1]))
    question = {"op": "recv", "topic": "nothing-here"}
    answer = client.call(question, flags=START | REQ, cap=CAPABILITY)
    same(answer, (200, {"messages": []}))
    return client, limits


def one_message(client):
    status, sent = client.call({"op": "send", "topic": "jobs", "text": "Grüße"})
    same(status, 200)
    status, received = client.call({"op": "recv", "topic": "jobs"})
    same(status, 200)
    (message,) = received["messages"]
    same((message["msg_id"], message["topic"]), (sent["msg_id"], "jobs"))
    same(message["text"], "Grüße")
    ack = {"op": "ack", "msg_id": sent["msg_id"]}
    same(client.call(ack), (200, {"ok": True}))
    status, refused = client.call(ack)
    same((status, refused["code"]), (404, "E_RECEIPT"))


def many_in_flight(client, limits):
    """As many at once as the service says; the first cannot be answered before the last."""
    wait = {"op": "recv", "topic": "late", "wait_ms": 15_000}
    waiting = client.ask(wait)
    texts = {}
    for n in range(limits["max_inflight"] - 1):
        texts[client.ask({"op": "send", "topic": "many", "text": str(n)})] = str(n)
    ids = {}
    for corr in sorted(texts, reverse=True):
        status, sent = client.answer(corr)
        same(status, 200)
        ids[sent["msg_id"]] = texts[corr]
    same(len(ids), len(texts))
    same(waiting in client.early, False)
    same(client.call({"op": "send", "topic": "late", "text": "now"})[0], 200)
    status, received = client.answer(waiting)
    same((status, [it["text"] for it in received["messages"]]), (200, ["now"]))
    status, received = client.call({"op": "recv", "topic": "many", "max": 100})
    same((status, {it["msg_id"]: it["text"] for it in received["messages"]}), (200, ids))


def refused(frame, status, code, first=None):
    """What is sent is answered with this, and nothing comes after it."""
    client = first or Client(ADDRESS)
    client.socket.sendall(frame)
    flags, found, _, _, _, _, payload = client.frame()
    same((bool(flags & RESP), found), (True, status))
    same(code in payload.decode(), True)
    same(client.frame(), None)


def malformed():
    question = b'{"op":"recv","topic":"jobs"}'
    good = encode(REQ, 0, MAILBOX, 0, b"", 7, question)
    refused(encode(REQ | 0x100, 0, MAILBOX, 0, b"", 7, question), 400, "E_SCHEMA")
    refused(good[:4] + struct.pack(">H", 2) + good[6:], 400, "E_SCHEMA")
    refused(encode(REQ, 0, MAILBOX, 0, CAPABILITY, 7, question), 400, "E_SCHEMA")
    refused(encode(RESP, 200, MAILBOX, 0, b"", 7, question), 400, "E_SCHEMA")
    refused(encode(REQ | END, 0, MAILBOX, 0, b"", 7, question), 400, "E_SCHEMA")
    again = encode(START | REQ, 0, MAILBOX, 0, CAPABILITY, 7, question)
    refused(again, 400, "E_SCHEMA", started()[0])
    # A length that lies, before any of such a body is sent.
    refused(struct.pack(">I", 1_048_577) + good[4:38], 413, "E_FRAME_TOO_LARGE")


def nobody():
    """Who does not say who it is may do nothing; the connection stays."""
    client = Client(ADDRESS)
    status, body = client.call({"op": "recv", "topic": "jobs"})
    same((status, body["code"], body["reason"]), (401, "E_CAP_AUTH", "missing"))
    same(client.call({"ua": "stranger/1"}, app=HELLO)[0], 200)


vectors()
print("vectors")
client, limits = started()
print("started")
one_message(client)
print("one message")
many_in_flight(client, limits)
print("many in flight")
malformed()
print("malformed")
nobody()
print("nobody")
