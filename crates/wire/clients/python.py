"""One client of `run`: python python.py WHICH URL SCRIPT [CONNECTIONS].

Sends every line of SCRIPT, prints every message, and ends with the marker. With CONNECTIONS it opens so many, each of
which reads what SCRIPT asks for, and holds them until its input ends.
"""

import asyncio
import gc
import sys
import threading
from urllib.parse import urlparse

WHICH, URL, SCRIPT, *CONNECTIONS = sys.argv[1:]
END = "the end of the campaign"
LINES = open(SCRIPT, encoding="utf-8").read().split("\n")[:-1]


def is_last(message):
    """Prints a message; whether it is the marker."""
    text = message if isinstance(message, str) else bytes(message).decode()
    sys.stdout.buffer.write(text.encode() + b"\n")
    sys.stdout.buffer.flush()
    return END in text


async def websockets(compression="deflate"):
    from websockets.asyncio.client import connect

    async with connect(URL, compression=compression, max_size=None, ping_interval=None, proxy=None) as socket:
        for line in LINES:
            await socket.send(line)
        async for message in socket:
            if is_last(message):
                return


async def websockets_plain():
    await websockets(compression=None)


def websockets_threads():
    from websockets.sync.client import connect

    with connect(URL, max_size=None, proxy=None) as socket:
        threading.Thread(target=lambda: [socket.send(line) for line in LINES], daemon=True).start()
        for message in socket:
            if is_last(message):
                return


async def aiohttp():
    import aiohttp

    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(URL, compress=15, max_msg_size=0) as socket:
            for line in LINES:
                await socket.send_str(line)
            async for message in socket:
                if is_last(message.data):
                    return


async def tornado():
    from tornado.websocket import websocket_connect

    socket = await websocket_connect(URL, compression_options={}, max_message_size=1 << 28)
    for line in LINES:
        await socket.write_message(line)
    while (message := await socket.read_message()) is not None:
        if is_last(message):
            return


def wsproto():
    import socket as sockets

    from wsproto import ConnectionType, WSConnection
    from wsproto.events import AcceptConnection, CloseConnection, Request, TextMessage
    from wsproto.extensions import PerMessageDeflate

    place = urlparse(URL)
    socket = sockets.create_connection((place.hostname, place.port))
    connection = WSConnection(ConnectionType.CLIENT)
    ask = Request(host=place.netloc, target=place.path or "/", extensions=[PerMessageDeflate()])
    socket.sendall(connection.send(ask))
    text = ""
    while True:
        connection.receive_data(socket.recv(1 << 16) or None)
        for event in connection.events():
            if isinstance(event, AcceptConnection):
                say = lambda: [socket.sendall(connection.send(TextMessage(data=line))) for line in LINES]
                say()
            elif isinstance(event, TextMessage):
                text += event.data
                if event.message_finished:
                    if is_last(text):
                        return
                    text = ""
            elif isinstance(event, CloseConnection):
                sys.exit(f"closed: {event.code} {event.reason}")


def websocket_client():
    from websocket import create_connection

    socket = create_connection(URL)
    threading.Thread(target=lambda: [socket.send(line) for line in LINES], daemon=True).start()
    while not is_last(socket.recv()):
        pass


async def hold(count):
    held = []
    if WHICH == "aiohttp":
        import aiohttp

        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    for _ in range(count):
        if WHICH == "aiohttp":
            socket = await session.ws_connect(URL, compress=15, max_msg_size=0)
            send, receive = socket.send_str, socket.receive_str
        else:
            from websockets.asyncio.client import connect

            socket = await connect(URL, max_size=None, ping_interval=None, proxy=None)
            send, receive = socket.send, socket.recv
        for line in LINES:
            await send(line)
        while not (await receive()).startswith('["EOSE"'):
            pass
        held.append(socket)
    gc.collect()
    print("held", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


played = hold(int(CONNECTIONS[0])) if CONNECTIONS else globals()[WHICH.replace("-", "_")]()
if asyncio.iscoroutine(played):
    asyncio.run(played)
