"""pynostr against a relay: publish, stored events, EOSE, a protected event.

usage: pynostr_client.py ws://127.0.0.1:7777 (needs pynostr; prints the relay's OK of each event)
"""

import sys

from pynostr.event import Event
from pynostr.filters import Filters, FiltersList
from pynostr.key import PrivateKey
from pynostr.relay_manager import RelayManager

key = PrivateKey()


def ask(event=None, filters=None):
    """What a connection of its own brings: ids of events, OKs, EOSEs."""
    relays = RelayManager(timeout=5)
    relays.add_relay(sys.argv[1])
    if filters:
        relays.add_subscription_on_all_relays("a", FiltersList([filters]))
    if event:
        relays.publish_event(event)
    relays.run_sync()
    pool = relays.message_pool
    events = [found.event.id for found in pool.get_all_events()]
    return events, [f"{ok.ok} {ok.message}" for ok in pool.get_all_ok()], pool.get_all_eose()


def note(content, *tags):
    event = Event(content, tags=[list(tag) for tag in tags])
    event.sign(key.hex())
    return event


stored = note("stored")
_, oks, _ = ask(event=stored)
assert oks == ["True "], oks
seen, _, eose = ask(filters=Filters(authors=[key.public_key.hex()], kinds=[1]))
assert seen == [stored.id] and eose, (seen, eose)
print("protected:", ask(event=note("protected", ["-"]))[1])
print("pynostr: published and requested")
