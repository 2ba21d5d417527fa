// khatru with a store in memory. Usage: khatru ADDRESS [tuned]
package main

import (
	"net/http"
	"os"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
)

func main() {
	store := &slicestore.SliceStore{}
	relay := khatru.NewRelay()
	if len(os.Args) > 2 {
		store.MaxLimit = 6000
		relay.MaxMessageSize = 4 << 20
	}
	if err := store.Init(); err != nil {
		panic(err)
	}
	relay.StoreEvent = append(relay.StoreEvent, store.SaveEvent)
	relay.ReplaceEvent = append(relay.ReplaceEvent, store.ReplaceEvent)
	relay.QueryEvents = append(relay.QueryEvents, store.QueryEvents)
	relay.CountEvents = append(relay.CountEvents, store.CountEvents)
	relay.DeleteEvent = append(relay.DeleteEvent, store.DeleteEvent)
	if err := http.ListenAndServe(os.Args[1], relay); err != nil {
		panic(err)
	}
}
