@0xb7c8f8a9d3e2f1a0;
# The capnp format. NostrEvent is binostr's layout, byte for byte; the messages around it are ours.
#
# A peer that does not know an ordinal of a union answers NOTICE unsupported.
#
# The Rust code in src/formats/generated follows this file: UPDATE_EXPECT=1 cargo test -p codecs --test generated_code

struct NostrEvent {
  fixedData @0 :Data;
  # 138 bytes: id[32] pubkey[32] sig[64] created_at i64 LE, kind u16 LE.
  tagData @1 :Data;
  # u16 LE tags; for each tag: u8 values; for each value an element.
  # element: u16 LE (bit 15: lowercase hex stored as bytes, bits 0-14: stored bytes), then the bytes.
  content @2 :Text;
}

struct EventBatch {
  # A batch without a message around it, which binostr's benchmarks store.
  events @0 :List(NostrEvent);
}

struct ClientMsg {
  union {
    event @0 :Data;   # a complete NostrEvent message: embedded structs cannot be spliced, their pointers are relative
    req @1 :Request;
    close @2 :Text;
    auth @3 :Data;    # a complete NostrEvent message
    count @4 :Request;
    negOpen @5 :NegOpen;
    negMsg @6 :Neg;
    negClose @7 :Text;
  }
}

struct RelayMsg {
  union {
    event @0 :SubEvent;
    ok @1 :Ok;
    eose @2 :Eose;
    closed @3 :Closed;
    notice @4 :Text;
    auth @5 :Text;
    count @6 :Count;
    negMsg @7 :Neg;
    negErr @8 :Closed;
    events @9 :SubEvents;
  }
}

struct Request {
  sub @0 :Text;
  filters @1 :List(Filter);
}

struct Filter {
  # A null pointer is "not asked"; an empty list matches nothing.
  ids @0 :Data;       # 32 bytes each
  authors @1 :Data;   # 32 bytes each
  kinds @2 :List(UInt16);
  since :union { any @3 :Void; at @4 :Int64; }
  until :union { any @5 :Void; at @6 :Int64; }
  limit :union { none @7 :Void; some @8 :UInt64; }
  search @9 :Text;
  tags @10 :List(TagFilter);
}

struct TagFilter {
  letter @0 :UInt8;
  values @1 :Data;
  # For each value: LEB128 of 2 * stored bytes + 1 for lowercase hex stored as bytes, then the bytes. Not tagData's
  # elements, whose 15 bits could not hold every text that a client may ask for.
}

struct SubEvent {
  sub @0 :Text;
  event @1 :Data;     # a complete NostrEvent message
}

struct SubEvents {
  sub @0 :Text;
  events @1 :List(Data);  # at least one; each a complete NostrEvent message
}

struct NegOpen {
  sub @0 :Text;
  filter @1 :Filter;
  data @2 :Data;      # a message of the negentropy protocol (NIP-77)
}

struct Neg {
  sub @0 :Text;
  data @1 :Data;
}

struct Ok {
  id @0 :Data;        # 32 bytes
  accepted @1 :Bool;
  text @2 :Text;
}

struct Eose {
  sub @0 :Text;
  finish @1 :Bool;    # NIP-67
  more @2 :Bool;
}

struct Closed {
  sub @0 :Text;
  text @1 :Text;
}

struct Count {
  sub @0 :Text;
  count @1 :UInt64;
  approximate @2 :Bool;
  hll @3 :Data;       # 256 bytes or null (NIP-45)
}
