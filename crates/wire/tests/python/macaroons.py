"""Does with pymacaroons what each line of JSON on stdin asks for, and answers with a line each."""

import json
import sys

from pymacaroons import MACAROON_V2, Macaroon, Verifier


def mint(ask):
    macaroon = Macaroon(
        location=ask["location"],
        identifier=ask["identifier"],
        key=bytes.fromhex(ask["key"]),
        version=MACAROON_V2,
    )
    for caveat in ask["caveats"]:
        macaroon.add_first_party_caveat(caveat)
    return macaroon.serialize()


def attenuate(ask):
    macaroon = Macaroon.deserialize(ask["token"])
    for caveat in ask["caveats"]:
        macaroon.add_first_party_caveat(caveat)
    return macaroon.serialize()


def verify(ask):
    verifier = Verifier()
    for caveat in ask["caveats"]:
        verifier.satisfy_exact(caveat)
    try:
        macaroon = Macaroon.deserialize(ask["token"])
        return verifier.verify(macaroon, bytes.fromhex(ask["key"]))
    except Exception as refused:  # pymacaroons raises many kinds for a bad token
        return type(refused).__name__


for line in sys.stdin:
    ask = json.loads(line)
    answer = {"mint": mint, "attenuate": attenuate, "verify": verify}[ask["do"]](ask)
    print(json.dumps(answer), flush=True)
