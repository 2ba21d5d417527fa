"""nostr-sdk's Python package against a relay: publish, stored events, a protected event without AUTH and with it.

usage: nostr_sdk_client.py ws://127.0.0.1:7777 (needs nostr-sdk; prints what became of the protected events)
"""

import asyncio
import sys
import time

from nostr_sdk import ClientBuilder, EventBuilder, Filter, Keys, Kind, RelayUrl, ReqTarget, SignerAuthenticator, Tag
from nostr_sdk.nostr_sdk import uniffi_set_event_loop


def note(keys, content, *tags):
    return EventBuilder(Kind(1), content).tags([Tag.parse(list(tag)) for tag in tags]).finalize(keys)


async def main(url):
    # An authenticator is called from a thread without one.
    uniffi_set_event_loop(asyncio.get_running_loop())
    keys = Keys.generate()
    for authenticates in [False, True]:
        builder = ClientBuilder()
        if authenticates:
            builder = builder.authenticator(SignerAuthenticator(keys))
        client = builder.build()
        await client.add_relay(RelayUrl.parse(url))
        await client.connect()
        stored = note(keys, f"stored {authenticates}")
        sent = await client.send_event(stored)
        assert not sent.failed, sent
        found = await client.fetch_events(ReqTarget.auto([Filter().author(keys.public_key())]))
        assert stored.id().to_hex() in [event.id().to_hex() for event in found], found
        began = time.monotonic()
        try:
            failed = list((await client.send_event(note(keys, "protected", ["-"]))).failed.values())
        except Exception as error:
            failed = [str(error)]
        seconds = time.monotonic() - began
        print(f"authenticates {authenticates}: protected {failed or 'accepted'} after {seconds:.2f} s")
        await client.shutdown()


asyncio.run(main(sys.argv[1]))
