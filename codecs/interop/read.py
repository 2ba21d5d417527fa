"""Reads codecs/vectors/v1.json in every format with the libraries that Python programs use, and without this project's code.

pip install cbor2 msgpack protobuf grpcio-tools pycapnp flatbuffers && python3 codecs/interop/read.py
"""

import hashlib
import json
import struct
import sys
import tempfile
from pathlib import Path

import capnp
import cbor2
import flatbuffers.number_types as fb_types
import flatbuffers.table
import msgpack
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

CODECS = Path(__file__).resolve().parent.parent
CLIENT = {1: "EVENT", 2: "REQ", 3: "CLOSE", 4: "AUTH", 5: "COUNT", 6: "NEG-OPEN", 7: "NEG-MSG", 8: "NEG-CLOSE"}
RELAY = {1: "EVENT", 2: "OK", 3: "EOSE", 4: "CLOSED", 5: "NOTICE", 6: "AUTH", 7: "COUNT"}
RELAY |= {8: "NEG-MSG", 9: "NEG-ERR", 10: "EVENTS"}
FILTER = {1: "ids", 2: "authors", 3: "kinds", 4: "since", 5: "until", 6: "limit", 7: "search"}
HINTS = ("finish", "more")


def text(value):
    """Tag values travel as text or as the bytes of hex; ids always as bytes."""
    return bytes(value).hex() if isinstance(value, (bytes, bytearray, memoryview)) else value


def event(id, pubkey, created_at, kind, tags, content, sig):
    tags = [[text(value) for value in tag] for tag in tags]
    names = ("id", "pubkey", "created_at", "kind", "tags", "content", "sig")
    return dict(zip(names, (text(id), text(pubkey), created_at, kind, tags, content, text(sig))))


def spelled(name):
    """neg_msg and negMsg are NEG-MSG."""
    return name.replace("_", "").upper().replace("NEG", "NEG-", 1)


def eose(sub, hints):
    return ["EOSE", sub] + ([hints] if hints else [])


def count(sub, number, approximate, hll):
    answer = {"count": number}
    if approximate:
        answer["approximate"] = True
    if hll:
        answer["hll"] = text(hll)
    return ["COUNT", sub, answer]


class Json:
    """Also NSON, whose extra field a JSON reader passes over."""

    def event(self, data):
        return event(**{name: value for name, value in json.loads(data).items() if name != "nson"})

    def client(self, data):
        return self.message(data)

    def relay(self, data):
        return self.message(data)

    def message(self, data):
        message = json.loads(data)
        for part in message:
            for event in part if isinstance(part, list) else [part]:
                if isinstance(event, dict):
                    event.pop("nson", None)
        return message


class Cbor:
    def __init__(self, layout):
        self.layout = layout

    def event(self, data):
        return self.item(cbor2.loads(data))

    def item(self, item):
        if self.layout == "packed":
            return event(*item)
        return event(**item) if self.layout == "schemaless" else event(*(item[key] for key in range(7)))

    def filter(self, item):
        if self.layout == "schemaless":
            conditions = {name: item.pop(name) for name in list(item) if name.startswith("#")}
            fields = item
        else:
            conditions = {"#" + letter: values for letter, values in item.pop(8, {}).items()}
            fields = {FILTER[number]: value for number, value in item.items()}
        lists = {**fields, **conditions}
        return {k: [text(v) for v in values] if isinstance(values, list) else values for k, values in lists.items()}

    def open(self, data, verbs):
        verb, *rest = cbor2.loads(data)
        return (verb if self.layout == "schemaless" else verbs[verb]), rest

    def client(self, data):
        verb, rest = self.open(data, CLIENT)
        if verb in ("EVENT", "AUTH"):
            return [verb, self.item(rest[0])]
        return [verb, rest[0]] + [self.filter(part) if isinstance(part, dict) else text(part) for part in rest[1:]]

    def relay(self, data):
        verb, rest = self.open(data, RELAY)
        if verb == "EVENT":
            return [verb, rest[0], self.item(rest[1])]
        if verb == "EVENTS":
            return [verb, rest[0], [self.item(item) for item in rest[1]]]
        if verb == "COUNT":
            return count(rest[0], rest[1], *(rest[2:] + [False, None])[:2])
        return [verb] + [text(part) for part in rest]


class Protobuf:
    def __init__(self, schema):
        with tempfile.NamedTemporaryFile() as out:
            arguments = ["protoc", f"-I{CODECS / 'schema'}", f"--descriptor_set_out={out.name}", f"{schema}.proto"]
            assert protoc.main(arguments) == 0, f"{schema}.proto does not compile"
            files = descriptor_pb2.FileDescriptorSet.FromString(Path(out.name).read_bytes())
        pool = descriptor_pool.DescriptorPool()
        pool.Add(files.file[0])
        self.types = {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{schema}.{name}"))
            for name in ("Event", "ClientMsg", "RelayMsg")
        }

    def value(self, value):
        return value if isinstance(value, str) else text(getattr(value, value.WhichOneof("value")))

    def item(self, e):
        tags = [[self.value(value) for value in tag.values] for tag in e.tags]
        return event(e.id, e.pubkey, e.created_at, e.kind, tags, e.content, e.sig)

    def event(self, data):
        return self.item(self.types["Event"].FromString(data))

    def filter(self, f):
        found = {name: [text(v) for v in getattr(f, name)] for name in ("ids", "authors", "kinds") if getattr(f, name)}
        for name in ("since", "until", "limit", "search"):
            if f.HasField(name):
                found[name] = getattr(f, name)
        return found | {"#" + tag.name: [self.value(value) for value in tag.values] for tag in f.tags}

    def client(self, data):
        message = self.types["ClientMsg"].FromString(data)
        verb = message.WhichOneof("message")
        body = getattr(message, verb)
        if verb in ("event", "auth"):
            return [verb.upper(), self.item(body)]
        if verb in ("close", "neg_close"):
            return [spelled(verb), body]
        if verb == "neg_open":
            return ["NEG-OPEN", body.sub, self.filter(body.filter), text(body.data)]
        if verb == "neg_msg":
            return ["NEG-MSG", body.sub, text(body.data)]
        return [verb.upper(), body.sub] + [self.filter(f) for f in body.filters]

    def relay(self, data):
        message = self.types["RelayMsg"].FromString(data)
        verb = message.WhichOneof("message")
        body = getattr(message, verb)
        if verb == "events":
            return ["EVENTS", body.sub, [self.item(e) for e in body.events]]
        if verb == "neg_msg":
            return ["NEG-MSG", body.sub, text(body.data)]
        if verb == "event":
            return ["EVENT", body.sub, self.item(body.event)]
        if verb == "ok":
            return ["OK", text(body.id), body.accepted, body.text]
        if verb == "eose":
            return eose(body.sub, list(body.hints))
        if verb == "count":
            return count(body.sub, body.count, body.approximate, body.hll)
        return [spelled(verb), body.sub, body.text] if verb in ("closed", "neg_err") else [verb.upper(), body]


class Capnp:
    schema = capnp.load(str(CODECS / "schema/nostr.capnp"))

    def __init__(self, packed):
        self.packed = packed

    def open(self, struct_type, data, packed):
        if packed:
            return struct_type.from_bytes_packed(data)
        with struct_type.from_bytes(data) as root:
            return root

    def event(self, data, packed=None):
        packed = self.packed if packed is None else packed
        root = self.open(self.schema.NostrEvent, data, packed)
        fixed, tags = Reader(root.fixedData), Reader(root.tagData)
        id, pubkey, sig, created_at, kind = fixed.struct("<32s32s64sqH")
        found = [[self.value(tags) for _ in range(tags.struct("<B")[0])] for _ in range(tags.struct("<H")[0])]
        fixed.end(), tags.end()
        return event(id, pubkey, created_at, kind, found, root.content, sig)

    def value(self, tags):
        (head,) = tags.struct("<H")
        data = tags.take(head & 0x7FFF)
        return data.hex() if head & 0x8000 else data.decode()

    def filter(self, f):
        found = {}
        for name in ("ids", "authors"):
            if f._has(name):
                found[name] = keys(getattr(f, name))
        if f._has("kinds"):
            found["kinds"] = list(f.kinds)
        for name, member in (("since", "at"), ("until", "at"), ("limit", "some")):
            if getattr(f, name).which() == member:
                found[name] = getattr(getattr(f, name), member)
        if f._has("search"):
            found["search"] = f.search
        return found | {"#" + chr(tag.letter): elements(Reader(tag.values)) for tag in f.tags}

    def client(self, data):
        root = self.open(self.schema.ClientMsg, data, self.packed)
        verb = str(root.which())
        body = getattr(root, verb)
        if verb in ("event", "auth"):
            return [verb.upper(), self.event(body, packed=False)]
        if verb in ("close", "negClose"):
            return [spelled(verb), body]
        if verb == "negOpen":
            return ["NEG-OPEN", body.sub, self.filter(body.filter), text(body.data)]
        if verb == "negMsg":
            return ["NEG-MSG", body.sub, text(body.data)]
        return [verb.upper(), body.sub] + [self.filter(f) for f in body.filters]

    def relay(self, data):
        root = self.open(self.schema.RelayMsg, data, self.packed)
        verb = str(root.which())
        body = getattr(root, verb)
        if verb == "event":
            return ["EVENT", body.sub, self.event(body.event, packed=False)]
        if verb == "events":
            return ["EVENTS", body.sub, [self.event(part, packed=False) for part in body.events]]
        if verb == "negMsg":
            return ["NEG-MSG", body.sub, text(body.data)]
        if verb == "ok":
            return ["OK", text(body.id), body.accepted, body.text]
        if verb == "eose":
            return eose(body.sub, [hint for hint in HINTS if getattr(body, hint)])
        if verb == "count":
            return count(body.sub, body.count, body.approximate, body.hll if body._has("hll") else None)
        return [spelled(verb), body.sub, body.text] if verb in ("closed", "negErr") else [verb.upper(), body]


class Reader:
    def __init__(self, data):
        self.data, self.at = bytes(data), 0

    def take(self, length):
        assert self.at + length <= len(self.data), "the input ended early"
        self.at += length
        return self.data[self.at - length : self.at]

    def rest(self):
        return self.take(len(self.data) - self.at)

    def struct(self, layout):
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def end(self):
        assert self.at == len(self.data), "bytes are left over"


def keys(data):
    return [text(data[at : at + 32]) for at in range(0, len(data), 32)]


def elements(reader):
    found = []
    while reader.at < len(reader.data):
        found.append(element(reader))
    return found


def element(reader):
    head = reader.varint()
    data = reader.take(head >> 1)
    return data.hex() if head & 1 else data.decode()


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def dannypack(data):
    def string(reader):
        (head,) = reader.struct("<B")
        length = head & 0x7F
        payload = reader.take(reader.varint() if length == 0x7F else length)
        return payload.hex() if head & 0x80 else payload.decode()

    reader = Reader(data)
    id, pubkey, sig, created_at, kind = reader.struct("<32s32s64sqH")
    block = Reader(reader.take(reader.varint()))
    tags = [[string(block) for _ in range(block.struct("<B")[0])] for _ in range(block.varint())]
    content = string(reader)
    block.end(), reader.end()
    return event(id, pubkey, created_at, kind, tags, content, sig)


def notepack(data):
    reader = Reader(data)
    assert reader.varint() == 1, "version 1"
    id, pubkey, sig = reader.struct("<32s32s64s")
    created_at, kind = signed(reader.varint()), reader.varint()
    content = reader.take(reader.varint()).decode()
    tags = [[element(reader) for _ in range(reader.varint())] for _ in range(reader.varint())]
    reader.end()
    return event(id, pubkey, created_at, kind, tags, content, sig)


def go_nostr(tag_count):
    def read(data):
        def string(reader, padded):
            value = reader.take(reader.struct(">H")[0]).decode()
            assert not padded or reader.take(1) == b"\0"
            return value

        reader = Reader(data)
        id, pubkey, sig, created_at, kind = reader.struct(">32s32s64sIH")
        content = string(reader, padded=False)
        count_of = lambda layout: range(reader.struct(layout)[0])
        tags = [[string(reader, padded=True) for _ in count_of(">B")] for _ in count_of(tag_count)]
        reader.end()
        return event(id, pubkey, created_at, kind, tags, content, sig)

    return read


def tlv(data):
    reader, fields = Reader(data), {}
    while reader.at < len(data):
        number, length = reader.struct(">BH")
        fields[number] = reader.take(length)
    block, tags = Reader(fields[5]), []
    while block.at < len(block.data):
        tags.append([block.take(block.struct(">B")[0]).decode() for _ in range(block.struct(">B")[0])])
    kind, created_at = int.from_bytes(fields[1]), int.from_bytes(fields[4], signed=True)
    return event(fields[0], fields[3], created_at, kind, tags, fields[2].decode(), fields[6])


def flat(data):
    """Through the library's tables; there is nothing that compiles a schema at run time."""

    def tables(table, slot):
        field = flatbuffers.table.Table.Offset(table, slot)
        start = table.Vector(field)
        return [flatbuffers.table.Table(data, table.Indirect(start + 4 * i)) for i in range(table.VectorLen(field))]

    def blob(table, slot):
        field = table.Offset(slot)
        return table.String(field + table.Pos) if field else None

    def value(table):
        found = blob(table, 4)
        return found.decode() if found is not None else blob(table, 6).hex()

    def number(table, slot, kind):
        field = table.Offset(slot)
        return table.Get(kind, field + table.Pos) if field else 0

    root = flatbuffers.table.Table(data, int.from_bytes(data[:4], "little"))
    tags = [[value(v) for v in tables(tag, 4)] for tag in tables(root, 12)]
    created_at, kind = number(root, 8, fb_types.Int64Flags), number(root, 10, fb_types.Uint16Flags)
    return event(blob(root, 4), blob(root, 6), created_at, kind, tags, blob(root, 14).decode(), blob(root, 16))


class Envelope:
    """The common envelope of codecs/src/envelope/mod.rs around an event format."""

    def __init__(self, read_event):
        self.event = read_event

    def sub(self, reader):
        return reader.take(reader.take(1)[0]).decode()

    def filter(self, reader):
        found = {}
        while reader.at < len(reader.data):
            number, field = reader.take(1)[0], Reader(reader.take(reader.varint()))
            if number in (1, 2):
                found[FILTER[number]] = keys(field.rest())
            elif number == 3:
                found["kinds"] = []
                while field.at < len(field.data):
                    found["kinds"].append(field.varint())
            elif number in (4, 5, 6):
                found[FILTER[number]] = signed(field.varint())
            elif number == 7:
                found["search"] = field.rest().decode()
            else:
                letter = field.take(1).decode()
                found["#" + letter] = elements(field)
            field.end()
        return found

    def client(self, data):
        reader = Reader(data)
        verb = CLIENT[reader.take(1)[0]]
        if verb in ("EVENT", "AUTH"):
            return [verb, self.event(reader.rest())]
        message = [verb, self.sub(reader)]
        if verb == "NEG-OPEN":
            message.append(self.filter(Reader(reader.take(reader.varint()))))
        if verb in ("NEG-OPEN", "NEG-MSG"):
            message.append(text(reader.rest()))
        if verb in ("REQ", "COUNT"):
            message += [self.filter(Reader(reader.take(reader.varint()))) for _ in range(reader.varint())]
        reader.end()
        return message

    def relay(self, data):
        reader = Reader(data)
        verb = RELAY[reader.take(1)[0] - 0x80]
        if verb in ("NOTICE", "AUTH"):
            return [verb, reader.rest().decode()]
        if verb == "OK":
            return [verb, reader.take(32).hex(), reader.take(1) == b"\1", reader.rest().decode()]
        sub = self.sub(reader)
        if verb == "EVENT":
            return [verb, sub, self.event(reader.rest())]
        if verb == "NEG-MSG":
            return [verb, sub, text(reader.rest())]
        if verb == "EVENTS":
            events = []
            while reader.at < len(reader.data):
                events.append(self.event(reader.take(reader.varint())))
            return [verb, sub, events]
        if verb in ("CLOSED", "NEG-ERR"):
            return [verb, sub, reader.rest().decode()]
        if verb == "EOSE":
            bits = reader.take(1)[0]
            return eose(sub, [hint for bit, hint in enumerate(HINTS) if bits >> bit & 1])
        number, flags = reader.varint(), reader.take(1)[0]
        return count(sub, number, flags & 1, reader.rest() if flags & 2 else None)


FORMATS = {
    "json": Json(),
    "cbor-schemaless": Cbor("schemaless"),
    "cbor-packed": Cbor("packed"),
    "cbor-intkey": Cbor("intkey"),
    "proto-string": Protobuf("nostr"),
    "proto-binary": Protobuf("nostr_binary"),
    "capnp": Capnp(packed=False),
    "dannypack": Envelope(dannypack),
    "notepack": Envelope(notepack),
    "capnp-packed": Capnp(packed=True),
    "proto-compact": Protobuf("nostr_compact"),
    "msgpack": Envelope(lambda data: event(*msgpack.unpackb(data))),
    "flatbuffers": Envelope(flat),
    "nson": Json(),
    "go-nostr-binary": Envelope(go_nostr(">H")),
    "leaner": Envelope(go_nostr(">B")),
    "tlv": Envelope(tlv),
}


def id_of(e):
    """NIP-01; control characters are written as JSON writes them."""
    canonical = [0, e["pubkey"], e["created_at"], e["kind"], e["tags"], e["content"]]
    return hashlib.sha256(json.dumps(canonical, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


def main():
    vectors = json.loads((CODECS / "vectors/v1.json").read_text())
    assert vectors["version"] == 1
    read, ids = 0, 0
    for kind, cases in (("event", vectors["events"]), ("client", vectors["client"]), ("relay", vectors["relay"])):
        for case in cases:
            expected = json.loads(case["json"])
            for name, entry in case["bytes"].items():
                label = f"{kind} {case['name']} in {name}"
                data = bytes.fromhex(entry["hex"])
                assert hashlib.sha256(data).hexdigest() == entry["sha256"], f"{label}: SHA-256"
                found = getattr(FORMATS[name], kind)(data)
                assert found == expected, f"{label}:\nread     {found}\nexpected {expected}"
                parts = [found] if kind == "event" else found
                parts = [part for entry in parts for part in (entry if isinstance(entry, list) else [entry])]
                for part in parts:
                    if isinstance(part, dict) and "pubkey" in part:
                        assert id_of(part) == part["id"], f"{label}: the id is not the hash of the content"
                        ids += 1
                read += 1
    print(f"Python: {read} events and messages in {len(FORMATS)} formats read as expected, {ids} ids recomputed")


if __name__ == "__main__":
    sys.exit(main())
