// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/net/http2"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/long"
)

// onlyOurs checks that stdout is one JSON value, the result or the error, and that stderr has only lines of our own
// log.
func (r *rig) onlyOurs(reply lab.Reply) {
	r.Helper()
	if !json.Valid(reply.Stdout) {
		r.Errorf("stdout %q", reply.Stdout)
	}
	lines := 0
	for line := range strings.Lines(string(reply.Stderr)) {
		lines++
		if !strings.HasPrefix(line, "time=") || !strings.Contains(line, " level=") || !strings.Contains(line, " plugin=") {
			r.Errorf("not ours: %s", line)
		}
	}
	if lines == 0 {
		r.Error("stderr has no log")
	}
}

// listen serves each connection to the host's port until the test is over.
func (r *rig) listen(serve func(net.Conn)) (addr string) {
	r.Helper()
	var l net.Listener
	err := r.host.Do(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// frames speaks HTTP/2 up to the client's settings, then sends what a test specifies, and continues reading.
func frames(say func(*http2.Framer) error) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(c, c)
		if err := errors.Join(f.WriteSettings(), f.WriteSettingsAck(), say(f)); err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, c)
	}
}

// TestStderr uses various broken etcds: the libraries' own complaints must not be printed.
func TestStderr(t *testing.T) {
	long.Test(t)
	cfg := small()
	cfg.TLS = true
	r := newRig(t, cfg)
	text := func(s string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = io.ReadAtLeast(c, make([]byte, 1), 1)
			_, _ = io.WriteString(c, s)
		}
	}
	for i, tt := range []struct {
		name   string
		scheme string
		serve  func(net.Conn)
	}{
		{"closes at once", "http", func(net.Conn) {}},
		{"closes at once, TLS", "https", func(net.Conn) {}},
		{"garbage", "http", text(strings.Repeat("\x00\xff", 4096))},
		{"garbage for TLS", "https", text(strings.Repeat("\x00\xff", 4096))},
		{"plain text for TLS", "https", text("HTTP/1.1 400 Bad Request\r\n\r\n")},
		{"another protocol", "http", text("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno")},
		{"unknown frames", "http", frames(func(f *http2.Framer) error {
			return errors.Join(f.WriteRawFrame(0x42, 0, 0, []byte("?")), f.WritePing(false, [8]byte{}), f.WriteRawFrame(0x43, 0, 1, nil))
		})},
		{"too many pings", "http", frames(func(f *http2.Framer) error {
			return f.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte("too_many_pings"))
		})},
		{"not gRPC", "http", frames(func(f *http2.Framer) error {
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					return err
				}
				if h, ok := frame.(*http2.HeadersFrame); ok {
					// :status 418, in plain text
					block := append([]byte{0x08, 3}, "418"...)
					err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: block, EndHeaders: true, EndStream: true})
					if err != nil {
						return err
					}
				}
			}
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &rig{t, r.lab, r.host}
			conf := map[string]any{"etcd_endpoints": tt.scheme + "://" + r.listen(tt.serve), "datastore_timeout_seconds": 1}
			if tt.scheme == "http" {
				conf["etcd_ca_cert_file"], conf["etcd_cert_file"], conf["etcd_key_file"] = "", "", ""
			}
			c := call(r.pod(fmt.Sprint("pod", i)), r.conf(conf))
			c.Env = []string{"GRPC_GO_LOG_SEVERITY_LEVEL=info", "GRPC_GO_LOG_VERBOSITY_LEVEL=99"}
			for _, v := range []string{"ADD", "DEL"} {
				reply, err := r.host.CNI(r.ctx(), verb(v, c))
				var said *types.Error
				if !errors.As(err, &said) || said.Details == "" {
					t.Errorf("%s: %v", v, err)
				}
				r.onlyOurs(reply)
			}
			r.empty()
		})
	}
}

// TestEtcdKilled kills etcd while a call waits for it.
func TestEtcdKilled(t *testing.T) {
	long.Test(t)
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(map[string]any{"datastore_timeout_seconds": 8}))
	there := r.must(c)
	other := c
	other.ContainerID, other.Netns = "c2", r.pod("other")
	for _, c := range []lab.Call{other, verb("CHECK", withResult(r, c, there)), verb("STATUS", c), verb("DEL", c)} {
		if err := r.lab.Members().Pause(1); err != nil {
			t.Fatal(err)
		}
		var reply lab.Reply
		ended := make(chan error, 1)
		go func() {
			var err error
			reply, err = r.host.CNI(r.ctx(), c)
			ended <- err
		}()
		if err := eventually.Wait(r.ctx(), "a connection to etcd", func() error {
			if len(ended) > 0 {
				return nil // a busy machine took longer to look than etcd has
			}
			return r.asksEtcd()
		}); err != nil {
			t.Fatal(err)
		}
		if err := r.lab.Members().Kill(1); err != nil {
			t.Fatal(err)
		}
		var said *types.Error
		if err := <-ended; !errors.As(err, &said) || said.Code != 11 && said.Code != 50 || said.Details == "" {
			t.Errorf("%s: %v", c.Verb, err)
		}
		r.onlyOurs(reply)
		if err := errors.Join(r.lab.Members().Start(r.ctx(), 1), r.lab.Members().Wait(r.ctx())); err != nil {
			t.Fatal(err)
		}
	}
	r.must(verb("DEL", c))
	r.empty()
}

// asksEtcd reports whether a process of the host is connected to etcd.
func (r *rig) asksEtcd() error {
	if out := r.sh("ss -Htn state established dport = :2379"); strings.TrimSpace(out) == "" {
		return errors.New("nobody is connected")
	}
	return nil
}
