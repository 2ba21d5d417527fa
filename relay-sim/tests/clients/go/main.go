// An unmodified go-nostr against a relay: AUTH, publish, stored events, EOSE, live events, COUNT, refusal.
// Usage: go run . ws://127.0.0.1:7777 (the relay runs with --auth)
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"
)

var key = nostr.GeneratePrivateKey()

func note(content string, tags ...nostr.Tag) nostr.Event {
	event := nostr.Event{Kind: nostr.KindTextNote, CreatedAt: nostr.Now(), Tags: tags, Content: content}
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

func hear(ctx context.Context, sub *nostr.Subscription, expected nostr.Event) {
	select {
	case event := <-sub.Events:
		if valid, _ := event.CheckSignature(); !valid || event.ID != expected.ID || event.Content != expected.Content {
			fail("expected %v, got %v", expected, event)
		}
	case reason := <-sub.ClosedReason:
		fail("subscription closed: %s", reason)
	case <-ctx.Done():
		fail("no event within the time")
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	publisher, err := nostr.RelayConnect(ctx, os.Args[1])
	must(err)
	reader, err := nostr.RelayConnect(ctx, os.Args[1])
	must(err)
	author, err := nostr.GetPublicKey(key)
	must(err)
	filters := nostr.Filters{{Kinds: []int{nostr.KindTextNote}, Authors: []string{author}}}

	// Long enough and repetitive enough that a compressed message shows in the relay's counts.
	first := note("stored \"first\" – with ümlauts, \\ and \u0001" + strings.Repeat(" and again", 300))
	must(publisher.Publish(ctx, first))
	sub, err := reader.Subscribe(ctx, filters)
	must(err)
	hear(ctx, sub, first)
	select {
	case <-sub.EndOfStoredEvents:
	case <-ctx.Done():
		fail("no EOSE within the time")
	}

	live := note("live", nostr.Tag{"t", "x"}, nostr.Tag{"e", first.ID})
	must(publisher.Publish(ctx, live))
	hear(ctx, sub, live)
	count, _, err := reader.Count(ctx, filters)
	must(err)
	if count != 2 {
		fail("counted %d events", count)
	}

	altered := note("before")
	altered.Content = "after"
	refused(publisher.Publish(ctx, altered), "invalid: event id does not match")
	secret := note("protected", nostr.Tag{"-"})
	refused(publisher.Publish(ctx, secret), "auth-required")
	must(publisher.Auth(ctx, func(event *nostr.Event) error { return event.Sign(key) }))
	must(publisher.Publish(ctx, secret))
	hear(ctx, sub, secret)
	sub.Unsub()
	must(publisher.Close())
	must(reader.Close())
	fmt.Println("go-nostr: published, subscribed, counted and authenticated")
}
