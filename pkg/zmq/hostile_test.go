// SPDX-License-Identifier: Apache-2.0

package zmq

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/zmqpeer"
)

func greeting() []byte {
	g := make([]byte, greetingSize)
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:], "NULL")
	return g
}

// ready is what a peer says after its greeting; properties are Socket-Type and whatever follows it.
func ready(properties string) []byte {
	body := "\x05READY" + properties
	return append([]byte{4, byte(len(body))}, body...)
}

const reqType = "\x0bSocket-Type\x00\x00\x00\x03REQ"

func long(flags byte, size uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{flags | flagLong}, size)
}

// TestHostile: whatever a peer sends, it loses its connection and no other does; the log says why.
func TestHostile(t *testing.T) {
	reasons := make(chan string, 10)
	cfg := config()
	cfg.Logger = slog.New(logged(reasons))
	at := echo(t, cfg)
	good := zmqpeer.Start(t).Connect("REQ", at, nil)
	begun := slices.Clip(append(greeting(), ready(reqType)...))
	plain := greeting()
	copy(plain[12:], "PLAIN\x00")
	for name, c := range map[string]struct {
		sends []byte
		why   string
	}{
		"HTTP":                       {[]byte("GET / HTTP/1.1\r\n\r\n"), "doesn't speak ZeroMQ"},
		"zeros":                      {make([]byte, 100), "doesn't speak ZeroMQ"},
		"ZeroMQ 2":                   {[]byte{1, 0}, "ZeroMQ, or its version 2"},
		"ZeroMQ 3":                   {append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f}, 1, 3), "it is of ZeroMQ 3"},
		"another mechanism":          {plain, "security mechanism"},
		"no READY":                   {append(greeting(), 4, 7, 5, 'E', 'R', 'R', 'O', 'R', 0), "invalid command name"},
		"a message before READY":     {append(greeting(), 0, 0), "invalid frame"},
		"READY in halves":            {append(greeting(), ready("\x0bSocket-Type\x00\x00")...), "no READY"},
		"READY of a long name":       {append(greeting(), ready("\xffSocket-Type")...), "unexpected EOF"},
		"READY of a long value":      {append(greeting(), ready("\x0bSocket-Type\xff\xff\xff\xff")...), "unexpected EOF"},
		"READY of one byte":          {append(greeting(), ready("\x0b")...), "unexpected EOF"},
		"READY without a type":       {append(greeting(), ready("")...), "no READY"},
		"an unknown type":            {append(greeting(), ready("\x0bSocket-Type\x00\x00\x00\x04WHAT")...), "no READY"},
		"a type that doesn't fit":    {append(greeting(), ready("\x0bSocket-Type\x00\x00\x00\x03SUB")...), "not compatible"},
		"a large READY":              {append(greeting(), long(4, maxHandshake+1)...), "4097 bytes"},
		"a frame of 4 EB":            {append(begun, long(0, 1<<62)...), "4611686018427387904 bytes"},
		"a negative length":          {append(begun, long(0, 1<<63)...), "9223372036854775808 bytes"},
		"a frame above the limit":    {append(begun, long(0, MaxMessage+1)...), "1048577 bytes"},
		"three parts":                {append(begun, 1, 0, 1, 0, 0, 0), "more than 2 parts"},
		"parts without end":          {append(begun, bytes.Repeat([]byte{1, 0}, 100)...), "more than 2 parts"},
		"a body without a delimiter": {append(begun, 0, 1, 'x'), "empty delimiter"},
		"a delimiter that isn't":     {append(begun, 1, 1, 'x', 0, 0), "empty delimiter"},
		"an empty command":           {append(begun, 4, 0), "EOF"},
		"a command in halves":        {append(begun, 4, 2, 9, 'P'), "invalid command name"},
	} {
		peer, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = peer.Write(c.sends) // the other side may be through with it
		if err := peer.SetReadDeadline(time.Now().Add(eventually.Limit)); err != nil {
			t.Fatal(err)
		}
		if reason := receive(t, reasons); !strings.Contains(reason, c.why) {
			t.Errorf("%s: the log says %q, want %q", name, reason, c.why)
		}
		_, err = io.Copy(io.Discard, peer)
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			t.Errorf("%s: the connection stays", name)
		}
		_ = peer.Close()
		good.Send("still")
		want(t, good.Receive(), "re still")
	}
}

// TestDeaf: a peer that asks without end and reads no answer loses its connection, before much is kept for it.
func TestDeaf(t *testing.T) {
	reasons := make(chan string, 10)
	cfg := config()
	cfg.Logger = slog.New(logged(reasons))
	peer, err := net.Dial("tcp", echo(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	_, err = peer.Write(append(greeting(), ready(reqType)...))
	for asked := 0; err == nil && asked < 64<<20; asked += MaxMessage / 2 {
		_, err = peer.Write(envelope(make([]byte, MaxMessage/2)))
	}
	if reason := receive(t, reasons); err == nil || !strings.Contains(reason, "it doesn't read") {
		t.Errorf("%v; the log says %q", err, reason)
	}
}

// TestHostileSubscriber is TestHostile for what subscribes, or publishes what is none.
func TestHostileSubscriber(t *testing.T) {
	reasons := make(chan string, 10)
	cfg := config()
	cfg.Logger = slog.New(logged(reasons))
	p, at, subscribed := publisher(t, cfg)
	good := zmqpeer.Start(t).Connect("SUB", at, nil)
	good.Subscribe("t")
	receive(t, subscribed)
	begun := slices.Clip(append(greeting(), ready("\x0bSocket-Type\x00\x00\x00\x03SUB")...))
	many := bytes.Clone(begun)
	for i := range maxSubscriptions + 1 {
		many = append(many, 0, 4, 1, byte(i>>16), byte(i>>8), byte(i))
	}
	for name, c := range map[string]struct {
		sends []byte
		why   string
	}{
		"nothing":                   {append(begun, 0, 0), "no subscription"},
		"neither on nor off":        {append(begun, 0, 1, 2), "no subscription"},
		"two parts":                 {append(begun, 1, 1, 1, 0, 0), "no subscription"},
		"a long topic":              {append(append(begun, long(0, maxTopic+2)...), append([]byte{1}, make([]byte, maxTopic+1)...)...), "a topic of 256 bytes"},
		"subscriptions without end": {many, "more than 65536 topics"},
	} {
		peer, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = peer.Write(c.sends) }() // the other side may be through with it
		if reason := receive(t, reasons); !strings.Contains(reason, c.why) {
			t.Errorf("%s: the log says %q, want %q", name, reason, c.why)
		}
		_ = peer.Close()
		publish(t, p, "t", "still")
		want(t, good.Receive(), "t", "still")
	}
	if p.mu.Lock(); len(p.subs) != 1 {
		t.Errorf("%d topics are kept, want the good peer's", len(p.subs))
	}
	p.mu.Unlock()
}

// TestSilent: a peer that doesn't finish what it began loses its connection in time, whatever that is.
func TestSilent(t *testing.T) {
	begun := slices.Clip(append(greeting(), ready(reqType)...))
	for name, c := range map[string]struct {
		sends []byte
		after time.Duration
	}{
		"nothing":         {nil, handshakeTimeout},
		"half a greeting": {greeting()[:20], handshakeTimeout},
		"no READY":        {greeting(), handshakeTimeout},
		"half a header":   {append(begun, flagLong, 0), frameTimeout},
		"half a frame":    {append(begun, 0, 9, 'x'), frameTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ours, theirs := net.Pipe()
			go func() { _, _ = theirs.Write(c.sends) }()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			conn, err := open(t.Context(), ours, zmq4.Router, true)
			if err == nil {
				err = conn.run(t.Context(), func([][]byte) error { return nil })
			}
			if took := time.Since(began); took != c.after || err == nil {
				t.Errorf("%s: the connection ended after %s: %v; want %s", name, took, err, c.after)
			}
			_ = theirs.Close()
		})
	}
}

// TestMute: a peer that doesn't read what little it is told loses its connection in time; one that is silent keeps it, and is answered
// when it pings.
func TestMute(t *testing.T) {
	for _, reads := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			go func() { _, _ = theirs.Write(append(greeting(), ready(reqType)...)) }()
			handshake := make([]byte, len(greeting())+2+len("\x05READY\x08Identity\x00\x00\x00\x00\x0bSocket-Type\x00\x00\x00\x06ROUTER"))
			read := make(chan struct{})
			var heard bytes.Buffer
			go func() {
				defer close(read)
				_, _ = io.ReadFull(theirs, handshake)
				if reads {
					_, _ = io.Copy(&heard, theirs)
				}
			}()
			conn, err := open(t.Context(), ours, zmq4.Router, true)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- conn.run(ctx, func([][]byte) error { return nil }) }()
			conn.send(envelope([]byte("x")))
			time.Sleep(writeTimeout + time.Hour)
			go func() { _, _ = theirs.Write([]byte{4, 7, 4, 'P', 'I', 'N', 'G', 0, 0}) }()
			synctest.Wait()
			select {
			case err := <-ended:
				if reads || !strings.Contains(err.Error(), "it doesn't read") {
					t.Errorf("reads %t: the connection ended: %v", reads, err)
				}
			default:
				if !reads {
					t.Error("a peer that doesn't read is kept")
				}
			}
			cancel()
			_ = theirs.Close()
			<-read
			if reads && !bytes.Contains(heard.Bytes(), []byte("\x04PONG")) {
				t.Errorf("a PING is answered by %q", heard.Bytes())
			}
		})
	}
}

// FuzzFrames: no bytes of a peer make room for more than they are, whatever pieces they come in.
func FuzzFrames(f *testing.F) {
	f.Add(append(append(greeting(), ready(reqType)...), 1, 0, 0, 3, 'a', 'b', 'c'), uint8(1))
	f.Add(append(greeting(), long(0, 1<<62)...), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		whole, pieces := frames{most: MaxMessage}, frames{most: MaxMessage}
		err := whole.take(b)
		var other error
		for rest := b; len(rest) > 0 && other == nil; {
			n := min(len(rest), int(piece)+1)
			other = pieces.take(rest[:n])
			rest = rest[n:]
		}
		if (err == nil) != (other == nil) || err == nil && (whole.left != pieces.left || whole.parts != pieces.parts || whole.seen != pieces.seen) {
			t.Errorf("whole %+v %v, in pieces %+v %v", whole, err, pieces, other)
		}
		if whole.left > MaxMessage || whole.parts > maxParts+1 || len(whole.head) > 9 {
			t.Errorf("%+v", whole)
		}
	})
}

// FuzzPeer: whatever a peer sends, its connection ends, and no more.
func FuzzPeer(f *testing.F) {
	begun := slices.Clip(append(greeting(), ready(reqType)...))
	f.Add(append(begun, 1, 0, 0, 3, 'a', 'b', 'c', 4, 5, 4, 'P', 'I', 'N', 'G'))
	f.Add(append(greeting(), ready("\x0bSocket-Type\x00\x00")...))
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		go func() {
			_, _ = theirs.Write(b)
			_ = theirs.Close()
		}()
		c, err := open(t.Context(), ours, zmq4.Router, true)
		if err == nil {
			err = c.run(t.Context(), func(parts [][]byte) error {
				_, err := enveloped(parts)
				return err
			})
		}
		if err == nil {
			t.Error("the connection ended without a reason")
		}
	})
}
