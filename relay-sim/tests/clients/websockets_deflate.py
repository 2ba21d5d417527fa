"""Python websockets against a relay: permessage-deflate both ways, with and without context takeover, and NIP-11.

Usage: python websockets_deflate.py ws://127.0.0.1:7777 < events.jsonl   (events that the relay accepts)
"""

import asyncio
import itertools
import json
import sys
import urllib.request

from websockets.asyncio.client import connect
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory


async def exchange(url, events, **parameters):
    """Publishes the events and reads them back over one connection."""
    offer = ClientPerMessageDeflateFactory(compress_settings={"memLevel": 8}, **parameters)
    async with connect(url, extensions=[offer], compression=None, max_size=None) as socket:
        assert [e.name for e in socket.protocol.extensions] == ["permessage-deflate"], socket.protocol.extensions
        for event in events:
            await socket.send(json.dumps(["EVENT", event]))
            answer = json.loads(await socket.recv())
            assert answer[:3] == ["OK", event["id"], True], answer
        await socket.send(json.dumps(["REQ", "back", {"ids": [event["id"] for event in events]}]))
        got = []
        while (message := json.loads(await socket.recv()))[0] == "EVENT":
            got.append(message[2])
        assert message == ["EOSE", "back"], message
        key = lambda event: event["id"]
        assert sorted(got, key=key) == sorted(events, key=key), f"{len(got)} of {len(events)} events"


async def main(url):
    events = [json.loads(line) for line in sys.stdin]
    assert events
    request = urllib.request.Request(url.replace("ws:", "http:"), headers={"Accept": "application/nostr+json"})
    with urllib.request.urlopen(request) as answer:
        assert 1 in json.load(answer)["supported_nips"]
    combinations = 0
    for server, client, window in itertools.product([False, True], [False, True], [None, 9, 12, 15]):
        await exchange(
            url,
            events,
            server_no_context_takeover=server,
            client_no_context_takeover=client,
            client_max_window_bits=window or True,
            server_max_window_bits=window,
        )
        combinations += 1
    print(f"websockets: {len(events)} events both ways in each of {combinations} parameter combinations")


asyncio.run(asyncio.wait_for(main(sys.argv[1]), 60))
