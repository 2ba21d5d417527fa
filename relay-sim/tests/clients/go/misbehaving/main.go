// Tests of an unmodified go-nostr against a relay that misbehaves.
// Usage: go run ./misbehaving (relay-sim on PATH)
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"
)

var key = nostr.GeneratePrivateKey()

// The relay's standard input, held so that it is not collected and closed.
var stdin io.WriteCloser

func note(content string) nostr.Event {
	event := nostr.Event{Kind: nostr.KindTextNote, CreatedAt: nostr.Now(), Content: content}
	must(event.Sign(key))
	return event
}

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

func refused(err error, reason string) {
	if err == nil || !strings.Contains(err.Error(), reason) {
		fail("expected %q, got %v", reason, err)
	}
}

// start runs a relay on a free port. It stops when this process ends, because its standard input does.
func start() string {
	relay := exec.Command("relay-sim", "--listen", "127.0.0.1:0", "--announce", "--control")
	relay.Stderr = os.Stderr
	var err error
	stdin, err = relay.StdinPipe()
	must(err)
	stdout, err := relay.StdoutPipe()
	must(err)
	must(relay.Start())
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	must(err)
	var announcement struct{ Listening string }
	must(json.Unmarshal(line, &announcement))
	return announcement.Listening
}

// plant replaces the faults of the relay.
func plant(url string, faults ...string) {
	body, err := json.Marshal(faults)
	must(err)
	control := strings.Replace(url, "ws:", "http:", 1) + "/faults"
	request, err := http.NewRequest(http.MethodPut, control, strings.NewReader(string(body)))
	must(err)
	answer, err := http.DefaultClient.Do(request)
	must(err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		fail("%v: %s", faults, answer.Status)
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	url := start()
	relay, err := nostr.RelayConnect(ctx, url)
	must(err)
	author, err := nostr.GetPublicKey(key)
	must(err)
	filter := nostr.Filter{Kinds: []int{nostr.KindTextNote}, Authors: []string{author}}
	must(relay.Publish(ctx, note("first")))

	// stored gives the events that come until EOSE, or until the patience ends.
	stored := func(patience time.Duration) (count int, eose bool) {
		sub, err := relay.Subscribe(ctx, nostr.Filters{filter})
		must(err)
		defer sub.Unsub()
		timeout := time.After(patience)
		for {
			select {
			case <-sub.Events:
				count++
			case <-sub.EndOfStoredEvents:
				return count, true
			case <-timeout:
				return count, false
			}
		}
	}

	// NIP-01: EOSE may never come, so nobody waits for it without end.
	plant(url, "no-eose")
	if count, eose := stored(500 * time.Millisecond); count != 1 || eose {
		fail("%d events, EOSE %v", count, eose)
	}

	// NIP-01: an event whose signature is wrong is none.
	plant(url, "wrong-sig")
	if count, _ := stored(5 * time.Second); count != 0 {
		fail("%d events with a wrong signature", count)
	}

	// NIP-01: a refusal by rate-limited: is worth another try, after a pause.
	plant(url, "rate-limited:message=1")
	second := note("second")
	refused(relay.Publish(ctx, second), "rate-limited: ")
	time.Sleep(100 * time.Millisecond)
	must(relay.Publish(ctx, second))

	// NIP-42: after auth-required: the client authenticates, and sends the event again.
	plant(url, "auth-required")
	third := note("third")
	refused(relay.Publish(ctx, third), "auth-required: ")
	must(relay.Auth(ctx, func(event *nostr.Event) error { return event.Sign(key) }))
	must(relay.Publish(ctx, third))

	// NIP-01: OK may never come, so nobody waits for it without end.
	plant(url, "no-ok")
	patience, done := context.WithTimeout(ctx, 500*time.Millisecond)
	defer done()
	refused(relay.Publish(patience, note("fourth")), "deadline exceeded")

	// RFC 6455: a relay goes when it wants to; the next connection works.
	plant(url, "reset:connection=1:message=1")
	_ = relay.Publish(ctx, note("fifth"))
	<-relay.Context().Done()
	relay, err = nostr.RelayConnect(ctx, url)
	must(err)
	if count, eose := stored(5 * time.Second); count != 4 || !eose {
		fail("%d events, EOSE %v", count, eose)
	}
	must(relay.Close())
	fmt.Println("go-nostr: timed out, verified, tried again, authenticated and connected again")
}
