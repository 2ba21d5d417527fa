package main

import "encoding/binary"

// unpack undoes the packed form: a tag byte for each word, runs of zeros and of plain words.
func unpack(data []byte) []byte {
	r, out := &reader{data}, []byte{}
	for len(r.data) > 0 {
		tag := r.u8()
		for bit := range 8 {
			if tag>>bit&1 == 1 {
				out = append(out, byte(r.u8()))
			} else {
				out = append(out, 0)
			}
		}
		switch tag {
		case 0x00:
			out = append(out, make([]byte, 8*r.u8())...)
		case 0xff:
			out = append(out, r.take(8*r.u8())...)
		}
	}
	return out
}

// capnpStruct is a struct of a message; its data are counted in bytes and its pointers in words.
type capnpStruct struct {
	segments            [][]byte
	segment, at         uint32
	dataWords, pointers uint32
}

func capnpRoot(data []byte) capnpStruct {
	word := func(at uint32) uint32 { return binary.LittleEndian.Uint32(data[at:]) }
	count := word(0) + 1
	at := 8 * ((count + 2) / 2)
	var segments [][]byte
	for i := range count {
		length := 8 * word(4+4*i)
		segments = append(segments, data[at:at+length])
		at += length
	}
	return capnpStruct{segments, 0, 0, 0, 1}.child(0)
}

// pointer follows a pointer through a far one and says where its object is; ok is false where it is null.
func (s capnpStruct) pointer(slot uint32) (segment, at, high uint32, ok bool) {
	if slot >= s.pointers {
		return
	}
	half := func(segment, at uint32) uint32 { return binary.LittleEndian.Uint32(s.segments[segment][at:]) }
	segment, at = s.segment, s.at+8*(s.dataWords+slot)
	low, high := half(segment, at), half(segment, at+4)
	if low&3 == 2 {
		check(low>>2&1 == 0, "one landing pad")
		segment, at = high, low&^7
		low, high = half(segment, at), half(segment, at+4)
	}
	return segment, at + 8 + uint32(int32(low)>>2)*8, high, low != 0 || high != 0
}

func (s capnpStruct) child(slot uint32) capnpStruct {
	segment, at, high, ok := s.pointer(slot)
	check(ok, "a struct")
	return capnpStruct{s.segments, segment, at, high & 0xffff, high >> 16}
}

func (s capnpStruct) list(slot uint32) []capnpStruct {
	segment, at, high, ok := s.pointer(slot)
	if !ok {
		return nil
	}
	check(high&7 == 7, "a list of structs")
	tag := s.segments[segment][at:]
	elements, size := binary.LittleEndian.Uint32(tag)>>2, binary.LittleEndian.Uint32(tag[4:])
	dataWords, pointers := size&0xffff, size>>16
	var found []capnpStruct
	for i := range elements {
		place := at + 8 + 8*i*(dataWords+pointers)
		found = append(found, capnpStruct{s.segments, segment, place, dataWords, pointers})
	}
	return found
}

// blob is nil where the pointer is null.
func (s capnpStruct) blob(slot, elementBytes uint32) []byte {
	segment, at, high, ok := s.pointer(slot)
	if !ok {
		return nil
	}
	return s.segments[segment][at : at+high>>3*elementBytes]
}

// blobs is a list of data.
func (s capnpStruct) blobs(slot uint32) [][]byte {
	segment, at, high, ok := s.pointer(slot)
	check(ok && high&7 == 6, "a list of pointers")
	pointers := capnpStruct{s.segments, segment, at, 0, high >> 3}
	var found [][]byte
	for i := range high >> 3 {
		found = append(found, pointers.blob(i, 1))
	}
	return found
}

func (s capnpStruct) text(slot uint32) string {
	found := s.blob(slot, 1)
	return string(found[:len(found)-1]) // without its NUL
}

func (s capnpStruct) data(at uint32) []byte { return s.segments[s.segment][s.at+at:] }
func (s capnpStruct) u16(at uint32) uint64  { return uint64(binary.LittleEndian.Uint16(s.data(at))) }
func (s capnpStruct) u64(at uint32) uint64  { return binary.LittleEndian.Uint64(s.data(at)) }

func capnpEvent(data []byte) object {
	root := capnpRoot(data)
	fixed, tags := root.blob(0, 1), &reader{root.blob(1, 1)}
	u16 := func() uint64 { return uint64(binary.LittleEndian.Uint16(tags.take(2))) }
	value := func() any {
		head := u16()
		if head&0x8000 != 0 {
			return text(tags.take(head & 0x7fff))
		}
		return tags.text(head)
	}
	found := repeat(u16(), func() any { return repeat(tags.u8(), value) })
	tags.end()
	createdAt, kind := int64(binary.LittleEndian.Uint64(fixed[128:])), binary.LittleEndian.Uint16(fixed[136:])
	return event(fixed[:32], fixed[32:64], createdAt, kind, found, root.text(2), fixed[64:128])
}

// capnpFilter: the unions of since, until and limit are at 0, 2 and 4, their numbers at 8, 16 and 24.
func capnpFilter(f capnpStruct) object {
	found := object{}
	for slot, name := range []string{"ids", "authors"} {
		if data := f.blob(uint32(slot), 1); data != nil {
			found[name] = keys(data)
		}
	}
	if kinds := f.blob(2, 2); kinds != nil {
		values := list{}
		for at := 0; at < len(kinds); at += 2 {
			values = append(values, binary.LittleEndian.Uint16(kinds[at:]))
		}
		found["kinds"] = values
	}
	for i, name := range []string{"since", "until", "limit"} {
		if f.u16(uint32(2*i)) == 1 {
			found[name] = int64(f.u64(uint32(8 + 8*i)))
		}
	}
	if f.blob(3, 1) != nil {
		found["search"] = f.text(3)
	}
	for _, tag := range f.list(4) {
		values := &reader{tag.blob(0, 1)}
		found["#"+string(rune(tag.data(0)[0]))] = values.all(values.element)
	}
	return found
}

func capnpFormat(open func([]byte) []byte) format {
	client := func(data []byte) list {
		root := capnpRoot(open(data))
		verb := clientVerbs[root.u16(0)+1]
		switch verb {
		case "EVENT", "AUTH":
			return list{verb, capnpEvent(root.blob(0, 1))}
		case "CLOSE", "NEG-CLOSE":
			return list{verb, root.text(0)}
		case "NEG-OPEN":
			body := root.child(0)
			return list{verb, body.text(0), capnpFilter(body.child(1)), text(body.blob(2, 1))}
		case "NEG-MSG":
			return list{verb, root.child(0).text(0), text(root.child(0).blob(1, 1))}
		}
		message := list{verb, root.child(0).text(0)}
		for _, filter := range root.child(0).list(1) {
			message = append(message, capnpFilter(filter))
		}
		return message
	}
	relay := func(data []byte) list {
		root := capnpRoot(open(data))
		verb := relayVerbs[root.u16(0)+1]
		if verb == "NOTICE" || verb == "AUTH" {
			return list{verb, root.text(0)}
		}
		body := root.child(0)
		switch verb {
		case "EVENT":
			return list{verb, body.text(0), capnpEvent(body.blob(1, 1))}
		case "OK":
			return list{verb, text(body.blob(0, 1)), body.data(0)[0] == 1, body.text(1)}
		case "EOSE":
			return eose(body.text(0), said(uint64(body.data(0)[0])))
		case "CLOSED", "NEG-ERR":
			return list{verb, body.text(0), body.text(1)}
		case "NEG-MSG":
			return list{verb, body.text(0), text(body.blob(1, 1))}
		case "EVENTS":
			events := list{}
			for _, one := range body.blobs(1) {
				events = append(events, capnpEvent(one))
			}
			return list{verb, body.text(0), events}
		}
		return count(body.text(0), body.u64(0), body.data(8)[0]&1 == 1, body.blob(1, 1))
	}
	return format{func(data []byte) object { return capnpEvent(open(data)) }, client, relay}
}
