"""What one who has only the address and a capability does with gRPC. A line for each part."""

import faulthandler
import json
import os
import queue
import shutil
import subprocess

from reflection_client import TIMEOUT, Client, problem

faulthandler.dump_traceback_later(60, exit=True)
CAPABILITY = os.environ["CAPABILITY"]
MAILBOX, HEALTH = "mailbox.v1.Mailbox", "grpc.health.v1.Health"
MIB = 1024 * 1024
ADDRESS = os.environ["HTTP_ADDRESS"]
client = Client(ADDRESS)


def same(found, wanted):
    if found != wanted:
        raise AssertionError(f"{found!r:.300} is not {wanted!r:.300}")


def call(name, /, **fields):
    return client.call(MAILBOX, name, fields, CAPABILITY)


def refused(name, /, **fields):
    """The code in gRPC, and the code that all protocols have in common."""
    code, details = problem(lambda: call(name, **fields))
    return code, details["code"]


def services():
    found = [it for it in client.services() if not it.startswith("grpc.reflection.")]
    same(found, [HEALTH, MAILBOX])
    methods = client.pool.FindServiceByName(MAILBOX).methods_by_name
    same({"Send", "Recv", "RecvStream", "Ack", "Nack", "SettleBatch"} - set(methods), set())


def health():
    """Needs no capability."""
    for name in ("", MAILBOX):
        answer = client.call(HEALTH, "Check", {"service": name})
        values = answer.DESCRIPTOR.fields_by_name["status"].enum_type.values_by_number
        same(values[answer.status].name, "SERVING")
    code, _ = problem(lambda: client.call(HEALTH, "Check", {"service": "nobody"}))
    same(code, "NOT_FOUND")


def one_message():
    fields = {"payload": b"\x00Hi\xff", "idem_key": "k-1", "attrs": {"lang": "de"}}
    sent = call("Send", topic="jobs", **fields)
    same(sent.duplicate, False)
    again = call("Send", topic="jobs", **fields)
    same((again.msg_id, again.duplicate), (sent.msg_id, True))
    (message,) = call("Recv", topic="jobs", max_messages=10).messages
    same((message.msg_id, message.payload), (sent.msg_id, b"\x00Hi\xff"))
    same((dict(message.attrs), message.idem_key, message.attempt), ({"lang": "de"}, "k-1", 1))
    same((len(message.payload_hash), message.HasField("reply_to")), (32, False))
    settle = {"msg_id": message.msg_id, "receipt_handle": message.receipt_handle}
    call("Extend", visibility_ms=60_000, **settle)
    call("Ack", **settle)
    same(refused("Ack", **settle), ("NOT_FOUND", "E_RECEIPT"))
    same(refused("Ack", msg_id=sent.msg_id), ("NOT_FOUND", "E_RECEIPT"))


def large_message():
    """As large as may be; one byte more, and more than a message of the transport."""
    payload = bytes(range(256)) * (MIB // 256)
    call("Send", topic="large", payload=payload)
    (message,) = call("Recv", topic="large").messages
    same(message.payload == payload, True)
    call("Ack", receipt_handle=message.receipt_handle)
    too_large = ("RESOURCE_EXHAUSTED", "E_FRAME_TOO_LARGE")
    same(refused("Send", topic="large", payload=payload + b"\0"), too_large)
    same(refused("Send", topic="large", payload=payload * 5), too_large)
    same(list(call("Recv", topic="large").messages), [])


def stream():
    """Three are received and settled, a fourth is not: once the stream is left, others get it."""
    sent = [call("Send", topic="flow", payload=f"{n}".encode()).msg_id for n in range(4)]
    received = call("RecvStream", topic="flow", max_messages=4)
    # Nothing is in a sign of life.
    messages = (it.envelope for it in received if it.HasField("envelope"))
    for n in range(3):
        message = next(messages)
        same((message.msg_id, message.payload), (sent[n], f"{n}".encode()))
        call("Ack", msg_id=message.msg_id, receipt_handle=message.receipt_handle)
    same(next(messages).msg_id, sent[3])
    received.cancel()
    code, _ = problem(lambda: next(messages))
    same(code, "CANCELLED")
    (message,) = call("Recv", topic="flow", wait_ms=15_000).messages
    same(message.msg_id, sent[3])
    call("Ack", receipt_handle=message.receipt_handle)
    stats = call("GetTopic", topic="flow").stats
    same((stats.ready, stats.invisible, stats.totals.acknowledged), (0, 0, 4))


def batches():
    """Each message and each delivery has a result of its own."""
    items = [{"payload": b"a"}, {"topic": "no good", "payload": b"b"}, {"payload": b"c"}]
    results = call("SendBatch", topic="batch", messages=items).results
    same([it.WhichOneof("result") for it in results], ["sent", "error", "sent"])
    same(results[1].error.code, "E_SCHEMA")
    messages = call("Recv", topic="batch", max_messages=10).messages
    handles = [it.receipt_handle for it in messages] + [messages[0].receipt_handle]
    items = [{"op": "SETTLE_OP_ACK", "receipt_handle": handle} for handle in handles]
    results = call("SettleBatch", items=items).results
    same([it.WhichOneof("result") for it in results], ["ok", "ok", "error"])
    same(results[2].error.code, "E_RECEIPT")


def refusals():
    bare = lambda: client.call(MAILBOX, "Recv", {"topic": "jobs"})
    code, details = problem(bare)
    same((code, details["code"], details["reason"]), ("UNAUTHENTICATED", "E_CAP_AUTH", "missing"))
    forged = lambda: client.call(MAILBOX, "Recv", {"topic": "jobs"}, "nonsense")
    code, details = problem(forged)
    same((code, details["code"]), ("UNAUTHENTICATED", "E_CAP_AUTH"))
    for topic in ("no good", "", "x" * 1000):
        same(refused("Send", topic=topic, payload=b""), ("INVALID_ARGUMENT", "E_SCHEMA"))
    unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    same(refused("GetMessage", msg_id=unknown), ("NOT_FOUND", "E_NOT_FOUND"))
    narrow = call("MintCapability", ops=["send"], topics=["jobs"], ttl_s=60).capability
    code, details = problem(lambda: client.call(MAILBOX, "Recv", {"topic": "jobs"}, narrow))
    same((code, details["code"], details["reason"]), ("PERMISSION_DENIED", "E_CAP_SCOPE", "op"))
    same(raw("Nothing", b"")[0], "UNIMPLEMENTED")
    same(raw("Send", b"\xff\xff\xff")[0], "INVALID_ARGUMENT")


def raw(method, message):
    """What these bytes are answered with, whatever they are."""
    make = client.channel.unary_unary(f"/{MAILBOX}/{method}")
    metadata = [("authorization", f"Bearer {CAPABILITY}")]
    return problem(lambda: make(message, timeout=TIMEOUT, metadata=metadata))


def while_open():
    """One who waits says so by keeping its side open, and gives up by closing it."""
    question, make = client.method(MAILBOX, "RecvWhileOpen")
    metadata = [("authorization", f"Bearer {CAPABILITY}")]

    def waiting(said):
        # Longer than the call may take: it must not wait for that.
        said.put(question(topic="open", wait_ms=10 * TIMEOUT * 1000))
        return make.future(iter(said.get, None), timeout=TIMEOUT, metadata=metadata)

    stays, leaves = queue.Queue(), queue.Queue()
    answer = waiting(stays)
    sent = call("Send", topic="open", payload=b"now")
    same([it.msg_id for it in answer.result().messages], [sent.msg_id])
    stays.put(None)
    answer = waiting(leaves)
    leaves.put(None)
    same(list(answer.result().messages), [])


def http2():
    """JSON on the same port, by those who know beforehand that it is HTTP/2."""
    curl = shutil.which("curl")
    features = subprocess.run([curl, "--version"], capture_output=True, text=True) if curl else None
    if not features or "HTTP2" not in features.stdout:
        return "there is no curl that speaks it"
    # Not among the arguments: all can see those.
    secrets = f'header = "Authorization: Bearer {CAPABILITY}"\n'
    say = ["--config", "-", "--silent", "--max-time", str(TIMEOUT), "--noproxy", "*"]
    say += ["--http2-prior-knowledge", "--write-out", "\n%{http_version} %{http_code}"]
    say += ["--data", '{"topic":"plain","payload_b64":"SGk="}', f"http://{ADDRESS}/v1/send"]
    said = subprocess.run([curl, *say], input=secrets, capture_output=True, text=True, check=True)
    body, how = said.stdout.rsplit("\n", 1)
    same((how, json.loads(body)["duplicate"]), ("2 200", False))
    same([it.payload for it in call("Recv", topic="plain").messages], [b"Hi"])


PARTS = (services, health, one_message, large_message, stream, batches, while_open, refusals, http2)
for part in PARTS:
    skipped = part()
    print(f"{part.__name__}: {skipped}" if skipped else part.__name__)
