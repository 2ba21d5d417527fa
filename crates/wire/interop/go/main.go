// Command frames reads messages of `+zstd-dict2-…` by klauspost/compress.
//
// usage: frames FOLDER; FOLDER has `dictionary`, and for each message its frames as `N.zst` and its payload as `N.txt`.
package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Layout of the frame headers in a message (RFC 8878 §3.1.1.1).
const (
	descriptorAt   = 4
	singleSegment  = 0x20
	dictionaryBits = 0x03
)

// naming has every frame of a message name the dictionary, which the token does for the relay: this decoder takes a
// dictionary for frames that name it alone.
func naming(dictionary, frames []byte) ([]byte, error) {
	var named []byte
	for len(frames) > 0 {
		var header zstd.Header
		if err := header.Decode(frames); err != nil {
			return nil, err
		}
		end, err := frameEnd(frames, header)
		if err != nil {
			return nil, err
		}
		descriptor := frames[descriptorAt]
		if descriptor&dictionaryBits != 0 {
			return nil, fmt.Errorf("the frame names a dictionary")
		}
		idAt := descriptorAt + 1
		if descriptor&singleSegment == 0 {
			idAt++ // the window
		}
		named = append(named, frames[:descriptorAt]...)
		named = append(named, descriptor|dictionaryBits)
		named = append(named, frames[descriptorAt+1:idAt]...)
		named = append(named, dictionary[4:8]...)
		named = append(named, frames[idAt:end]...)
		frames = frames[end:]
	}
	return named, nil
}

// frameEnd walks the blocks of the first frame.
func frameEnd(frames []byte, header zstd.Header) (int, error) {
	at := header.HeaderSize
	for {
		if at+3 > len(frames) {
			return 0, io.ErrUnexpectedEOF
		}
		block := int(frames[at]) | int(frames[at+1])<<8 | int(frames[at+2])<<16
		size := block >> 3
		if block>>1&3 == 1 {
			size = 1 // one byte, repeated
		}
		at += 3 + size
		if block&1 == 1 {
			break
		}
	}
	if header.HasCheckSum {
		at += 4
	}
	if at > len(frames) {
		return 0, io.ErrUnexpectedEOF
	}
	return at, nil
}

func run(folder string) (int, error) {
	dictionary, err := os.ReadFile(filepath.Join(folder, "dictionary"))
	if err != nil {
		return 0, err
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderDicts(dictionary), zstd.WithDecoderMaxMemory(1<<20))
	if err != nil {
		return 0, err
	}
	names, err := filepath.Glob(filepath.Join(folder, "*.zst"))
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		frames, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		payload, err := os.ReadFile(strings.TrimSuffix(name, ".zst") + ".txt")
		if err != nil {
			return 0, err
		}
		named, err := naming(dictionary, frames)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		read, err := decoder.DecodeAll(named, nil)
		if err != nil || !bytes.Equal(read, payload) {
			return 0, fmt.Errorf("%s, in one call: %w", name, err)
		}
		if err := decoder.Reset(bytes.NewReader(named)); err != nil {
			return 0, err
		}
		read, err = io.ReadAll(decoder)
		if err != nil || !bytes.Equal(read, payload) {
			return 0, fmt.Errorf("%s, as a stream: %w", name, err)
		}
	}
	return len(names), nil
}

func main() {
	count, err := run(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(count)
}
