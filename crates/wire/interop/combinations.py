"""The peer of combinations.rs: Python `websockets` with every valid set of permessage-deflate parameters.

usage: combinations.py server        an echo server a set; prints their ports
       combinations.py client URL    a connection a set, which checks the echo; prints each answer

A window of 8 bits is offered for what the other end compresses only: zlib cannot compress with it.
"""

import asyncio
import contextlib
import itertools
import sys

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory, ServerPerMessageDeflateFactory

PROTOCOLS = ["nostr.json"]
FLAGS = [False, True]
WINDOWS = list(range(9, 16))
MESSAGES = ["", "a", "0123456789abcdef" * 40, "0123456789abcdef" * 40, "é" * 20_000]


async def echo(socket):
    async for message in socket:
        await socket.send(message)


async def server():
    async with contextlib.AsyncExitStack() as stack:
        for ours, theirs, bits, client_bits in itertools.product(FLAGS, FLAGS, [None, *WINDOWS], [None, *WINDOWS]):
            extension = ServerPerMessageDeflateFactory(
                server_no_context_takeover=ours,
                client_no_context_takeover=theirs,
                server_max_window_bits=bits,
                client_max_window_bits=client_bits,
            )
            listening = await stack.enter_async_context(
                serve(echo, "127.0.0.1", 0, compression=None, extensions=[extension], subprotocols=PROTOCOLS)
            )
            print(listening.sockets[0].getsockname()[1])
        print("end", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def client(url):
    for theirs, ours, server_bits, bits in itertools.product(FLAGS, FLAGS, [None, 8, *WINDOWS], [None, True, *WINDOWS]):
        extension = ClientPerMessageDeflateFactory(
            server_no_context_takeover=theirs,
            client_no_context_takeover=ours,
            server_max_window_bits=server_bits,
            client_max_window_bits=bits,
        )
        async with connect(url, compression=None, extensions=[extension], subprotocols=PROTOCOLS) as socket:
            for message in MESSAGES:
                await socket.send(message)
                assert await socket.recv() == message
            answer = socket.response.headers.get("Sec-WebSocket-Extensions", "")
        print(f"{server_bits or 15} {answer}")
    print("end", flush=True)


asyncio.run({"server": server, "client": client}[sys.argv[1]](*sys.argv[2:]))
