package main

import (
	"encoding/binary"
	"unicode/utf8"
)

// reader is a cursor; a read beyond the end is a panic.
type reader struct{ data []byte }

func (r *reader) take(length uint64) []byte {
	check(length <= uint64(len(r.data)), "the input ended early")
	found := r.data[:length]
	r.data = r.data[length:]
	return found
}

func (r *reader) rest() []byte { return r.take(uint64(len(r.data))) }
func (r *reader) end()         { check(len(r.data) == 0, "bytes are left over") }
func (r *reader) u8() uint64   { return uint64(r.take(1)[0]) }
func (r *reader) u16() uint64  { return uint64(binary.BigEndian.Uint16(r.take(2))) }

func (r *reader) text(length uint64) string {
	found := r.take(length)
	check(utf8.Valid(found), "UTF-8")
	return string(found)
}

func (r *reader) varint() uint64 {
	value, length := binary.Uvarint(r.data)
	check(length > 0, "a varint")
	r.data = r.data[length:]
	return value
}

// repeat calls make count times.
func repeat(count uint64, make func() any) list {
	found := list{}
	for range count {
		found = append(found, make())
	}
	return found
}

// all calls make until nothing is left.
func (r *reader) all(make func() any) list {
	found := list{}
	for len(r.data) > 0 {
		found = append(found, make())
	}
	return found
}

func keys(data []byte) list {
	r := &reader{data}
	return r.all(func() any { return text(r.take(32)) })
}

// element is the common envelope's and notepack's: twice the length, and one more for the bytes of hex.
func (r *reader) element() any {
	head := r.varint()
	if head&1 == 1 {
		return text(r.take(head >> 1))
	}
	return r.text(head >> 1)
}

// --- event formats in the common envelope --------------------------------------------------------------------

func dannypack(data []byte) object {
	str := func(r *reader) any {
		head := r.u8()
		length := head & 0x7f
		if length == 0x7f {
			length = r.varint()
		}
		if head&0x80 != 0 {
			return text(r.take(length))
		}
		return r.text(length)
	}
	r := &reader{data}
	id, pubkey, sig := r.take(32), r.take(32), r.take(64)
	createdAt, kind := int64(binary.LittleEndian.Uint64(r.take(8))), binary.LittleEndian.Uint16(r.take(2))
	block := &reader{r.take(r.varint())}
	tags := repeat(block.varint(), func() any { return repeat(block.u8(), func() any { return str(block) }) })
	content := str(r)
	block.end()
	r.end()
	return event(id, pubkey, createdAt, kind, tags, content, sig)
}

func notepack(data []byte) object {
	r := &reader{data}
	check(r.varint() == 1, "version 1")
	id, pubkey, sig := r.take(32), r.take(32), r.take(64)
	createdAt, kind := int64(r.varint()), r.varint()
	content := r.text(r.varint())
	tags := repeat(r.varint(), func() any { return repeat(r.varint(), r.element) })
	r.end()
	return event(id, pubkey, createdAt, kind, tags, content, sig)
}

func goNostr(tagCount func(*reader) uint64) func([]byte) object {
	return func(data []byte) object {
		r := &reader{data}
		id, pubkey, sig := r.take(32), r.take(32), r.take(64)
		createdAt, kind := binary.BigEndian.Uint32(r.take(4)), r.u16()
		content := r.text(r.u16())
		value := func() any {
			found := r.text(r.u16())
			check(r.u8() == 0, "a zero behind each value")
			return found
		}
		tags := repeat(tagCount(r), func() any { return repeat(r.u8(), value) })
		r.end()
		return event(id, pubkey, createdAt, kind, tags, content, sig)
	}
}

func tlv(data []byte) object {
	r, entries := &reader{data}, map[uint64][]byte{}
	for len(r.data) > 0 {
		number := r.u8()
		entries[number] = r.take(r.u16())
	}
	block := &reader{entries[5]}
	tags := block.all(func() any { return repeat(block.u8(), func() any { return block.text(block.u8()) }) })
	kind, createdAt := binary.BigEndian.Uint32(entries[1]), int64(binary.BigEndian.Uint64(entries[4]))
	return event(entries[0], entries[3], createdAt, kind, tags, string(entries[2]), entries[6])
}

// envelope is the common envelope of codecs/src/envelope/mod.rs around an event format.
func envelope(readEvent func([]byte) object) format {
	filter := func(r *reader) object {
		found := object{}
		for len(r.data) > 0 {
			tag := r.u8()
			field := &reader{r.take(r.varint())}
			switch name := filterFields[tag]; tag {
			case 1, 2:
				found[name] = keys(field.rest())
			case 3:
				found[name] = field.all(func() any { return field.varint() })
			case 4, 5:
				found[name] = int64(field.varint())
			case 6:
				found[name] = field.varint()
			case 7:
				found[name] = string(field.rest())
			default:
				letter := field.text(1)
				found["#"+letter] = field.all(field.element)
			}
			field.end()
		}
		return found
	}
	client := func(data []byte) list {
		r := &reader{data}
		verb := clientVerbs[r.u8()]
		if verb == "EVENT" || verb == "AUTH" {
			return list{verb, readEvent(r.rest())}
		}
		message := list{verb, r.text(r.u8())}
		if verb == "NEG-OPEN" {
			message = append(message, filter(&reader{r.take(r.varint())}))
		}
		if verb == "NEG-OPEN" || verb == "NEG-MSG" {
			message = append(message, text(r.rest()))
		}
		if verb == "REQ" || verb == "COUNT" {
			message = append(message, repeat(r.varint(), func() any { return filter(&reader{r.take(r.varint())}) })...)
		}
		r.end()
		return message
	}
	relay := func(data []byte) list {
		r := &reader{data}
		verb := relayVerbs[r.u8()-0x80]
		switch verb {
		case "NOTICE", "AUTH":
			return list{verb, string(r.rest())}
		case "OK":
			return list{verb, text(r.take(32)), r.u8() == 1, string(r.rest())}
		}
		sub := r.text(r.u8())
		switch verb {
		case "EVENT":
			return list{verb, sub, readEvent(r.rest())}
		case "CLOSED", "NEG-ERR":
			return list{verb, sub, string(r.rest())}
		case "NEG-MSG":
			return list{verb, sub, text(r.rest())}
		case "EVENTS":
			return list{verb, sub, r.all(func() any { return readEvent(r.take(r.varint())) })}
		case "EOSE":
			return eose(sub, said(r.u8()))
		}
		number, flags := r.varint(), r.u8()
		return count(sub, number, flags&1 == 1, r.rest())
	}
	return format{readEvent, client, relay}
}
