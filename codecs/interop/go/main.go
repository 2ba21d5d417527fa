// Reads codecs/vectors/v1.json in every format with the libraries that Go programs use, and without this project's
// code. Cap'n Proto and its packed form are read by hand: its library wants generated code.
//
//	cd codecs/interop/go && go run .
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strconv"
)

// list is a JSON array, object a JSON object.
type (
	list   = []any
	object = map[string]any
)

// format reads what one format wrote; what it cannot read is a panic.
type format struct {
	event  func([]byte) object
	client func([]byte) list
	relay  func([]byte) list
}

var (
	clientVerbs = map[uint64]string{
		1: "EVENT", 2: "REQ", 3: "CLOSE", 4: "AUTH", 5: "COUNT", 6: "NEG-OPEN", 7: "NEG-MSG", 8: "NEG-CLOSE",
	}
	relayVerbs = map[uint64]string{
		1: "EVENT", 2: "OK", 3: "EOSE", 4: "CLOSED", 5: "NOTICE", 6: "AUTH", 7: "COUNT",
		8: "NEG-MSG", 9: "NEG-ERR", 10: "EVENTS",
	}
	filterFields = map[uint64]string{1: "ids", 2: "authors", 3: "kinds", 4: "since", 5: "until", 6: "limit", 7: "search"}
	eventFields  = []string{"id", "pubkey", "created_at", "kind", "tags", "content", "sig"}
	hints        = list{"finish", "more"}
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func check(ok bool, what string) {
	if !ok {
		panic(what)
	}
}

// text turns bytes into hex, all the way down: tag values travel as text or as the bytes of hex, ids as bytes.
func text(value any) any {
	switch value := value.(type) {
	case []byte:
		return hex.EncodeToString(value)
	case list:
		found := list{}
		for _, part := range value {
			found = append(found, text(part))
		}
		return found
	}
	return value
}

func event(values ...any) object {
	check(len(values) == len(eventFields), "an event has seven fields")
	found := object{}
	for i, name := range eventFields {
		found[name] = text(values[i])
	}
	return found
}

func eose(sub string, said list) list {
	if len(said) == 0 {
		return list{"EOSE", sub}
	}
	return list{"EOSE", sub, said}
}

func count(sub, number any, approximate bool, hll []byte) list {
	answer := object{"count": number}
	if approximate {
		answer["approximate"] = true
	}
	if len(hll) > 0 {
		answer["hll"] = text(hll)
	}
	return list{"COUNT", sub, answer}
}

func said(bits uint64) list {
	found := list{}
	for bit, hint := range hints {
		if bits>>bit&1 == 1 {
			found = append(found, hint)
		}
	}
	return found
}

// parse keeps numbers as they are written.
func parse(data []byte) any {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var found any
	check(decoder.Decode(&found) == nil, "JSON")
	return found
}

// flat1 puts the parts of lists in place of the lists: a batch holds its events in one.
func flat1(message list) list {
	found := list{}
	for _, part := range message {
		if parts, ok := part.(list); ok {
			found = append(found, parts...)
		} else {
			found = append(found, part)
		}
	}
	return found
}

// jsonFormat is also NSON, whose extra field a JSON reader passes over.
func jsonFormat() format {
	message := func(data []byte) list {
		found := parse(data).(list)
		for _, part := range flat1(found) {
			if part, ok := part.(object); ok {
				delete(part, "nson")
			}
		}
		return found
	}
	read := func(data []byte) object {
		found := parse(data).(object)
		delete(found, "nson")
		return found
	}
	return format{read, message, message}
}

// nsonFormat reads an event twice: as JSON, and as github.com/nbd-wtf/go-nostr/nson does, which
// finds the parts by the descriptor and unquotes them as Go's strings.
func nsonFormat() format {
	asJSON := jsonFormat()
	read := func(data []byte) object {
		found := asJSON.event(data)
		if bytes.HasPrefix(data[min(309, len(data)):], []byte(`,"nson":"`)) {
			check(reflect.DeepEqual(byDescriptor(data), list{found["content"], found["tags"]}), "NSON")
		}
		return found
	}
	return format{read, asJSON.client, asJSON.relay}
}

// byDescriptor is content and tags.
func byDescriptor(data []byte) list {
	size := must(hex.DecodeString(string(data[318:320])))[0]
	lengths := must(hex.DecodeString(string(data[320 : 320+2*int(size)])))
	next := func() int {
		length := int(lengths[0])<<8 | int(lengths[1])
		lengths = lengths[2:]
		return length
	}
	at := 320 + 2*int(size) + len(`","kind":`) + int(lengths[0]) + len(`,"content":`)
	lengths = lengths[1:]
	text := func() any {
		quoted := data[at : at+next()+2]
		at += len(quoted)
		return must(strconv.Unquote(string(quoted)))
	}
	content := text()
	at += len(`,"tags":[`)
	tags := list{}
	count := int(lengths[0])
	lengths = lengths[1:]
	for range count {
		values := int(lengths[0])
		lengths = lengths[1:]
		at++ // the bracket
		tag := list{}
		for i := range values {
			tag = append(tag, text())
			if i+1 < values {
				at++
			}
		}
		tags = append(tags, tag)
		at += len(`],`)
	}
	return list{content, tags}
}

// idOf is NIP-01's; control characters are written as JSON writes them.
func idOf(e object) string {
	canonical := list{0}
	for _, name := range eventFields[1:6] {
		canonical = append(canonical, e[name])
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(canonical) == nil, "JSON")
	line := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	// Go writes these two as JavaScript once needed them.
	for _, c := range []string{"\u2028", "\u2029"} {
		line = bytes.ReplaceAll(line, []byte(fmt.Sprintf(`\u%04x`, []rune(c)[0])), []byte(c))
	}
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

type vector struct {
	Name  string
	JSON  string
	Bytes map[string]struct{ SHA256, Hex string }
}

func main() {
	codecs := must(filepath.Abs("../.."))
	formats := formats(filepath.Join(codecs, "schema"))
	var vectors struct {
		Version               int
		Events, Client, Relay []vector
	}
	if err := json.Unmarshal(must(os.ReadFile(filepath.Join(codecs, "vectors/v1.json"))), &vectors); err != nil {
		log.Fatal(err)
	}
	check(vectors.Version == 1, "version 1")
	read, ids := 0, 0
	each := func(kind string, cases []vector, decode func(format, []byte) any) {
		for _, one := range cases {
			expected := parse([]byte(one.JSON))
			names := make([]string, 0, len(one.Bytes))
			for name := range one.Bytes {
				names = append(names, name)
			}
			sort.Strings(names)
			for _, name := range names {
				label := fmt.Sprintf("%s %s in %s", kind, one.Name, name)
				data := must(hex.DecodeString(one.Bytes[name].Hex))
				sum := sha256.Sum256(data)
				check(hex.EncodeToString(sum[:]) == one.Bytes[name].SHA256, label+": SHA-256")
				reader, known := formats[name]
				check(known, label+": no reader")
				found := parse(must(json.Marshal(decode(reader, data))))
				if !reflect.DeepEqual(found, expected) {
					log.Fatalf("%s:\nread     %v\nexpected %v", label, found, expected)
				}
				parts, isMessage := found.(list)
				if !isMessage {
					parts = list{found}
				}
				for _, part := range flat1(parts) {
					if e, ok := part.(object); ok && e["pubkey"] != nil {
						check(idOf(e) == e["id"], label+": the id is not the hash of the content")
						ids++
					}
				}
				read++
			}
		}
	}
	each("event", vectors.Events, func(f format, data []byte) any { return f.event(data) })
	each("client", vectors.Client, func(f format, data []byte) any { return f.client(data) })
	each("relay", vectors.Relay, func(f format, data []byte) any { return f.relay(data) })
	fmt.Printf("Go: %d events and messages in %d formats read as expected, %d ids recomputed\n", read, len(formats), ids)
}
