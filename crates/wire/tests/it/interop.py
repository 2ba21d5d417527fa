"""The peer of interop.rs: Python `websockets`, as an echo server or as a client that checks the echo.

usage: interop.py server EXTENSION_JSON
       interop.py client EXTENSION_JSON URL

EXTENSION_JSON holds the parameters of permessage-deflate, or null for none. The server prints its port, the client
prints the extensions that were agreed.
"""

import asyncio
import json
import random
import sys

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory, ServerPerMessageDeflateFactory

PROTOCOLS = ["nostr.json"]


def messages():
    """Texts and bytes of many sizes, more and less compressible. All are ASCII or UTF-8: the echo is a text frame."""
    source = random.Random(7)
    for size in [0, 1, 125, 126, 700, 700, 700, 0, 65_535, 65_536]:
        yield "".join(source.choice("0123456789abcdef") for _ in range(size))
        yield json.dumps(["EVENT", "sub", {"content": "é" * size}], ensure_ascii=False)
        yield bytes(source.randrange(128) for _ in range(size))


async def echo(socket):
    async for message in socket:
        await socket.send(message)


async def server(parameters):
    extensions = [] if parameters is None else [ServerPerMessageDeflateFactory(**parameters)]
    async with serve(
        echo, "127.0.0.1", 0, compression=None, extensions=extensions, subprotocols=PROTOCOLS
    ) as listening:
        print(listening.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def client(parameters, url):
    extensions = [] if parameters is None else [ClientPerMessageDeflateFactory(**parameters)]
    async with connect(url, compression=None, extensions=extensions, subprotocols=PROTOCOLS) as socket:
        assert socket.subprotocol == PROTOCOLS[0], socket.subprotocol
        for message in messages():
            # In fragments, which the extension compresses as one message.
            third = len(message) // 3
            await socket.send([message[:third], message[third:]] if third else message)
            # The relay speaks the frame type of its format, so bytes come back as text.
            expected = message.decode() if isinstance(message, bytes) else message
            answer = await socket.recv()
            assert answer == expected, (answer[:50], expected[:50])
            await (await socket.ping())
        print(socket.response.headers.get("Sec-WebSocket-Extensions", ""), flush=True)


role, extension, *rest = sys.argv[1:]
asyncio.run({"server": server, "client": client}[role](json.loads(extension), *rest))
