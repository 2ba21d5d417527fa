"""Tests of nostr-sdk's Python package against a relay that misbehaves.

usage: test_relay.py (relay-sim on PATH; needs nostr-sdk)
"""

import asyncio
import json
import subprocess
import time
import urllib.request
from datetime import timedelta

from nostr_sdk import ClientBuilder, EventBuilder, Filter, Keys, Kind, RelayUrl, ReqTarget, SignerAuthenticator
from nostr_sdk.nostr_sdk import uniffi_set_event_loop


class Sim:
    """A relay on a free port. It stops when this process ends, because its standard input does."""

    def __init__(self):
        command = ["relay-sim", "--listen", "127.0.0.1:0", "--announce", "--control"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.url = json.loads(self.process.stdout.readline())["listening"]

    def plant(self, *faults):
        """Replaces the faults of the relay."""
        control = self.url.replace("ws:", "http:") + "/faults"
        request = urllib.request.Request(control, json.dumps(faults).encode(), method="PUT")
        urllib.request.urlopen(request).close()

    def stop(self):
        self.process.communicate()


def note(keys, content):
    return EventBuilder(Kind(1), content).finalize(keys)


async def main():
    # An authenticator is called from a thread without one.
    uniffi_set_event_loop(asyncio.get_running_loop())
    sim, keys = Sim(), Keys.generate()
    client = ClientBuilder().authenticator(SignerAuthenticator(keys)).build()
    await client.add_relay(RelayUrl.parse(sim.url))
    await client.connect(and_wait=timedelta(seconds=5))
    target = ReqTarget.auto([Filter().author(keys.public_key())])

    async def stored(seconds):
        return await client.fetch_events(target, timeout=timedelta(seconds=seconds))

    async def refusal(event, **options):
        """Why the relay did not take the event; nothing where it did."""
        try:
            return " ".join((await client.send_event(event, **options)).failed.values())
        except Exception as error:
            return str(error)

    assert not await refusal(note(keys, "first"))

    # NIP-01: EOSE may never come, so nobody waits for it without end.
    sim.plant("no-eose")
    began = time.monotonic()
    assert len(await stored(0.5)) == 1
    assert time.monotonic() - began < 5

    # NIP-01: an event whose id or signature is wrong is none. The client above has seen this one.
    for fault in ["wrong-sig", "wrong-id"]:
        sim.plant(fault)
        reader = ClientBuilder().build()
        await reader.add_relay(RelayUrl.parse(sim.url))
        await reader.connect()
        assert len(await reader.fetch_events(target, timeout=timedelta(seconds=2))) == 0, fault
        await reader.shutdown()

    # NIP-01: a refusal by rate-limited: is worth another try, after a pause.
    sim.plant("rate-limited:message=1")
    second = note(keys, "second")
    assert "rate-limited: " in await refusal(second)
    await asyncio.sleep(0.1)
    assert not await refusal(second)

    # NIP-42: after auth-required: the client authenticates and sends the event again, here by itself.
    sim.plant("auth-required")
    assert not await refusal(note(keys, "third"))

    # NIP-01: OK may never come, so nobody waits for it without end.
    sim.plant("no-ok")
    assert await refusal(note(keys, "fourth"), ok_timeout=timedelta(seconds=0.5))

    # RFC 6455: a relay goes when it wants to; the next connection works.
    sim.plant("close=1013:connection=1:message=1")
    await refusal(note(keys, "fifth"), ok_timeout=timedelta(seconds=0.5))
    began = time.monotonic()
    while len(await stored(1)) < 4:  # nostr-sdk connects again by itself, after a pause
        assert time.monotonic() - began < 40
        await asyncio.sleep(0.2)
    await client.shutdown()
    sim.stop()
    print("nostr-sdk: timed out, verified, tried again, authenticated and connected again")


asyncio.run(main())
