// One client of `run`: stack WHICH URL SCRIPT [CONNECTIONS].
//
// Sends every line of SCRIPT, prints every message, and ends with the marker. With CONNECTIONS it
// opens so many, each of which reads what SCRIPT asks for, and holds them until its input ends.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"strconv"
	"strings"

	coder "github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"
)

const end = "the end of the campaign"

type client interface {
	send(line string) error
	receive() ([]byte, error)
}

type coderClient struct{ *coder.Conn }

func (c coderClient) send(line string) error {
	return c.Write(context.Background(), coder.MessageText, []byte(line))
}

func (c coderClient) receive() ([]byte, error) {
	_, message, err := c.Read(context.Background())
	return message, err
}

type gorillaClient struct{ *gorilla.Conn }

func (c gorillaClient) send(line string) error {
	return c.WriteMessage(gorilla.TextMessage, []byte(line))
}

func (c gorillaClient) receive() ([]byte, error) {
	_, message, err := c.ReadMessage()
	return message, err
}

func open(which, url string) client {
	switch which {
	case "gorilla":
		dialer := gorilla.Dialer{EnableCompression: true}
		conn, _, err := dialer.Dial(url, nil)
		check(err)
		return gorillaClient{conn}
	case "coder", "coder-default":
		options := &coder.DialOptions{}
		if which == "coder" {
			options.CompressionMode = coder.CompressionContextTakeover
		}
		conn, _, err := coder.Dial(context.Background(), url, options)
		check(err)
		conn.SetReadLimit(-1)
		return coderClient{conn}
	}
	log.Fatalf("there is no client %q", which)
	return nil
}

func main() {
	which, url := os.Args[1], os.Args[2]
	script, err := os.ReadFile(os.Args[3])
	check(err)
	lines := strings.Split(strings.TrimSuffix(string(script), "\n"), "\n")
	if len(os.Args) > 4 {
		count, err := strconv.Atoi(os.Args[4])
		check(err)
		hold(which, url, lines, count)
		return
	}
	conn := open(which, url)
	go func() {
		for _, line := range lines {
			check(conn.send(line))
		}
	}()
	out := bufio.NewWriter(os.Stdout)
	for {
		message, err := conn.receive()
		check(err)
		out.Write(append(message, '\n'))
		check(out.Flush())
		if bytes.Contains(message, []byte(end)) {
			return
		}
	}
}

func hold(which, url string, lines []string, count int) {
	held := make([]client, count)
	for n := range held {
		held[n] = open(which, url)
		for _, line := range lines {
			check(held[n].send(line))
		}
		for {
			message, err := held[n].receive()
			check(err)
			if bytes.HasPrefix(message, []byte(`["EOSE"`)) {
				break
			}
		}
	}
	runtime.GC()
	fmt.Println("held")
	io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(held)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
