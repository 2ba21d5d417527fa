"""A relay of another language that spoils some deliveries: NIP-01 over `websockets`, nothing more.

`lying_relay.py FAULT COUNT [DEFLATE]` listens on a free port of 127.0.0.1, prints its URL, and spoils COUNT live
deliveries in one way: none, lose, double, alter, invent, misroute. `mute` never answers a REQ with `limit: 0`;
`close` ends COUNT live subscriptions (CLOSED); `slow` takes 20 ms for each EVENT.

DEFLATE is what it grants of permessage-deflate: `own`, what the library grants by default; `narrow`, a window of 12
bits and no takeover for clients; `none`.
"""

import asyncio
import json
import sys

from websockets.asyncio.server import serve
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory

fault, left = sys.argv[1], int(sys.argv[2])
narrow = ServerPerMessageDeflateFactory(client_no_context_takeover=True, server_max_window_bits=12)
deflate = {
    "own": {},
    "narrow": {"compression": None, "extensions": [narrow]},
    "none": {"compression": None},
}[sys.argv[3] if len(sys.argv) > 3 else "own"]
subscriptions = {}
stored = []
delivered = 0


def matches(event, condition):
    return (
        event["kind"] in condition.get("kinds", [event["kind"]])
        and event["pubkey"] in condition.get("authors", [event["pubkey"]])
        and event["id"] in condition.get("ids", [event["id"]])
    )


def deliveries(name, event):
    """The messages that one delivery becomes; every tenth is spoiled until enough are."""
    global delivered, left
    honest = ["EVENT", name, event]
    delivered += 1
    if delivered % 10 or not left or fault in ("none", "mute", "slow"):
        return [honest]
    left -= 1
    return {
        "lose": [],
        "double": [honest, honest],
        "alter": [["EVENT", name, event | {"content": event["content"] + "!"}]],
        "invent": [honest, ["EVENT", name, event | {"id": f"{delivered:064x}"}]],
        "misroute": [["EVENT", "nobody", event]],
        "close": [honest, ["CLOSED", name, "error: enough"]],
    }[fault]


async def client(socket):
    own = subscriptions.setdefault(socket, {})
    try:
        async for text in socket:
            kind, *rest = json.loads(text)
            if kind == "REQ":
                if fault == "mute" and rest[1].get("limit") == 0:
                    continue
                own[rest[0]] = rest[1:]
                limit = max(condition.get("limit", 100) for condition in rest[1:])
                found = [event for event in stored if any(matches(event, condition) for condition in rest[1:])]
                for event in found[::-1][:limit]:
                    await socket.send(json.dumps(["EVENT", rest[0], event]))
                await socket.send(json.dumps(["EOSE", rest[0]]))
            elif kind == "CLOSE":
                own.pop(rest[0], None)
            elif kind == "EVENT":
                event = rest[0]
                if fault == "slow":
                    await asyncio.sleep(0.02)
                stored.append(event)
                await socket.send(json.dumps(["OK", event["id"], True, ""]))
                for peer, names in list(subscriptions.items()):
                    for name, conditions in list(names.items()):
                        if any(matches(event, condition) for condition in conditions):
                            for message in deliveries(name, event):
                                await peer.send(json.dumps(message))
                                if message[0] == "CLOSED":
                                    del names[name]
    finally:
        subscriptions.pop(socket, None)


async def main():
    async with serve(client, "127.0.0.1", 0, **deflate) as server:
        port = server.sockets[0].getsockname()[1]
        print(f"ws://127.0.0.1:{port}", flush=True)
        # Ends with whoever started it.
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
