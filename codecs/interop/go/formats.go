package main

import (
	"context"
	"reflect"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/fxamacker/cbor/v2"
	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/vmihailenco/msgpack/v5"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

func formats(schema string) map[string]format {
	return map[string]format{
		"json":            jsonFormat(),
		"cbor-schemaless": cborFormat("schemaless"),
		"cbor-packed":     cborFormat("packed"),
		"cbor-intkey":     cborFormat("intkey"),
		"proto-string":    protobufFormat(schema, "nostr"),
		"proto-binary":    protobufFormat(schema, "nostr_binary"),
		"capnp":           capnpFormat(func(data []byte) []byte { return data }),
		"dannypack":       envelope(dannypack),
		"notepack":        envelope(notepack),
		"capnp-packed":    capnpFormat(unpack),
		"proto-compact":   protobufFormat(schema, "nostr_compact"),
		"msgpack":         envelope(messagePack),
		"flatbuffers":     envelope(flat),
		"nson":            nsonFormat(),
		"go-nostr-binary": envelope(goNostr((*reader).u16)),
		"leaner":          envelope(goNostr((*reader).u8)),
		"tlv":             envelope(tlv),
	}
}

func messagePack(data []byte) object {
	var found list
	check(msgpack.Unmarshal(data, &found) == nil, "MessagePack")
	return event(found...)
}

// --- CBOR ----------------------------------------------------------------------------------------------------

func cborFormat(layout string) format {
	mode := must(cbor.DecOptions{DefaultMapType: reflect.TypeOf(map[any]any{})}.DecMode())
	open := func(data []byte) any {
		var found any
		check(mode.Unmarshal(data, &found) == nil, "CBOR")
		return found
	}
	item := func(found any) object {
		if values, ok := found.(list); ok {
			return event(values...)
		}
		values := list{}
		for i, name := range eventFields {
			key := any(name)
			if layout == "intkey" {
				key = uint64(i)
			}
			values = append(values, found.(map[any]any)[key])
		}
		return event(values...)
	}
	filter := func(found any) object {
		fields := object{}
		for key, value := range found.(map[any]any) {
			switch key := key.(type) {
			case string:
				fields[key] = text(value)
			case uint64:
				if key < 8 {
					fields[filterFields[key]] = text(value)
					continue
				}
				for letter, values := range value.(map[any]any) {
					fields["#"+letter.(string)] = text(values)
				}
			}
		}
		return fields
	}
	verbOf := func(message list, verbs map[uint64]string) string {
		if number, ok := message[0].(uint64); ok {
			return verbs[number]
		}
		return message[0].(string)
	}
	client := func(data []byte) list {
		message := open(data).(list)
		verb := verbOf(message, clientVerbs)
		if verb == "EVENT" || verb == "AUTH" {
			return list{verb, item(message[1])}
		}
		found := list{verb, message[1]}
		for _, one := range message[2:] {
			if data, ok := one.([]byte); ok {
				found = append(found, text(data))
			} else {
				found = append(found, filter(one))
			}
		}
		return found
	}
	relay := func(data []byte) list {
		message := open(data).(list)
		verb := verbOf(message, relayVerbs)
		switch verb {
		case "EVENT":
			return list{verb, message[1], item(message[2])}
		case "EVENTS":
			events := list{}
			for _, one := range message[2].(list) {
				events = append(events, item(one))
			}
			return list{verb, message[1], events}
		case "COUNT":
			rest := append(message[3:], false, []byte(nil))
			hll, _ := rest[1].([]byte)
			return count(message[1], message[2], rest[0].(bool), hll)
		}
		return append(list{verb}, text(message[1:]).(list)...)
	}
	return format{func(data []byte) object { return item(open(data)) }, client, relay}
}

// --- protobuf ------------------------------------------------------------------------------------------------

// fields reads a message's fields by name.
type fields struct{ protoreflect.Message }

func (f fields) get(name string) protoreflect.Value {
	return f.Get(f.Descriptor().Fields().ByName(protoreflect.Name(name)))
}

func (f fields) has(name string) bool {
	return f.Has(f.Descriptor().Fields().ByName(protoreflect.Name(name)))
}

func (f fields) member() string {
	oneof := f.Descriptor().Oneofs().Get(0)
	return string(f.WhichOneof(oneof).Name())
}

func (f fields) repeated(name string) list {
	found, values := list{}, f.get(name).List()
	for i := range values.Len() {
		value := values.Get(i).Interface()
		if message, ok := value.(protoreflect.Message); ok {
			value = fields{message}
		}
		found = append(found, value)
	}
	return found
}

// values are text, or a message of text or hex.
func (f fields) values() list {
	found := list{}
	for _, value := range f.repeated("values") {
		if message, ok := value.(fields); ok {
			value = message.get(message.member()).Interface()
		}
		found = append(found, text(value))
	}
	return found
}

// spelled: neg_msg is NEG-MSG.
func spelled(member string) string {
	return strings.ToUpper(strings.ReplaceAll(member, "_", "-"))
}

func protobufFormat(schema, file string) format {
	resolver := &protocompile.SourceResolver{ImportPaths: []string{schema}}
	compiler := protocompile.Compiler{Resolver: resolver}
	files := must(compiler.Compile(context.Background(), file+".proto"))
	open := func(name string, data []byte) fields {
		descriptor := files[0].Messages().ByName(protoreflect.Name(name))
		message := dynamicpb.NewMessage(descriptor)
		check(proto.Unmarshal(data, message) == nil, "protobuf")
		return fields{message}
	}
	item := func(e fields) object {
		tags := list{}
		for _, tag := range e.repeated("tags") {
			tags = append(tags, tag.(fields).values())
		}
		value := func(name string) any { return e.get(name).Interface() }
		return event(value("id"), value("pubkey"), value("created_at"), value("kind"), tags, value("content"), value("sig"))
	}
	filter := func(f fields) object {
		found := object{}
		for _, name := range []string{"ids", "authors", "kinds"} {
			if values := f.repeated(name); len(values) > 0 {
				found[name] = text(values)
			}
		}
		for _, name := range []string{"since", "until", "limit", "search"} {
			if f.has(name) {
				found[name] = f.get(name).Interface()
			}
		}
		for _, tag := range f.repeated("tags") {
			found["#"+tag.(fields).get("name").String()] = tag.(fields).values()
		}
		return found
	}
	client := func(data []byte) list {
		message := open("ClientMsg", data)
		verb := spelled(message.member())
		if verb == "CLOSE" || verb == "NEG-CLOSE" {
			return list{verb, message.get(message.member()).String()}
		}
		body := fields{message.get(message.member()).Message()}
		switch verb {
		case "EVENT", "AUTH":
			return list{verb, item(body)}
		case "NEG-OPEN":
			asked := filter(fields{body.get("filter").Message()})
			return list{verb, body.get("sub").String(), asked, text(body.get("data").Bytes())}
		case "NEG-MSG":
			return list{verb, body.get("sub").String(), text(body.get("data").Bytes())}
		}
		found := list{verb, body.get("sub").String()}
		for _, one := range body.repeated("filters") {
			found = append(found, filter(one.(fields)))
		}
		return found
	}
	relay := func(data []byte) list {
		message := open("RelayMsg", data)
		verb := spelled(message.member())
		if verb == "NOTICE" || verb == "AUTH" {
			return list{verb, message.get(message.member()).String()}
		}
		body := fields{message.get(message.member()).Message()}
		switch verb {
		case "EVENT":
			return list{verb, body.get("sub").String(), item(fields{body.get("event").Message()})}
		case "OK":
			return list{verb, text(body.get("id").Interface()), body.get("accepted").Bool(), body.get("text").String()}
		case "EOSE":
			return eose(body.get("sub").String(), body.repeated("hints"))
		case "CLOSED", "NEG-ERR":
			return list{verb, body.get("sub").String(), body.get("text").String()}
		case "NEG-MSG":
			return list{verb, body.get("sub").String(), text(body.get("data").Bytes())}
		case "EVENTS":
			events := list{}
			for _, one := range body.repeated("events") {
				events = append(events, item(one.(fields)))
			}
			return list{verb, body.get("sub").String(), events}
		}
		return count(body.get("sub").String(), body.get("count").Uint(), body.get("approximate").Bool(), body.get("hll").Bytes())
	}
	return format{func(data []byte) object { return item(open("Event", data)) }, client, relay}
}

// --- FlatBuffers ---------------------------------------------------------------------------------------------

// flat uses the library's tables, as generated code does.
func flat(data []byte) object {
	place := func(table flatbuffers.Table, slot flatbuffers.VOffsetT) flatbuffers.UOffsetT {
		if offset := flatbuffers.UOffsetT(table.Offset(slot)); offset != 0 {
			return table.Pos + offset
		}
		return 0
	}
	blob := func(table flatbuffers.Table, slot flatbuffers.VOffsetT) []byte {
		return table.ByteVector(place(table, slot))
	}
	tables := func(table flatbuffers.Table, slot flatbuffers.VOffsetT) []flatbuffers.Table {
		field := place(table, slot) - table.Pos
		found := []flatbuffers.Table{}
		for i := range table.VectorLen(field) {
			at := table.Indirect(table.Vector(field) + flatbuffers.UOffsetT(4*i))
			found = append(found, flatbuffers.Table{Bytes: data, Pos: at})
		}
		return found
	}
	root := flatbuffers.Table{Bytes: data, Pos: flatbuffers.GetUOffsetT(data)}
	tags := list{}
	for _, tag := range tables(root, 12) {
		values := list{}
		for _, value := range tables(tag, 4) {
			if place(value, 4) != 0 {
				values = append(values, string(blob(value, 4)))
			} else {
				values = append(values, blob(value, 6))
			}
		}
		tags = append(tags, values)
	}
	createdAt, kind := root.GetInt64Slot(8, 0), root.GetUint16Slot(10, 0)
	return event(blob(root, 4), blob(root, 6), createdAt, kind, tags, string(blob(root, 14)), blob(root, 16))
}
