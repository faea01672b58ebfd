// SPDX-License-Identifier: Apache-2.0

package nsm

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kernel/crossconnect"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/pkg/nsmgrpc"
)

// TestTraffic sends 1 GB through a connection on one node, and one between two.
func TestTraffic(t *testing.T) {
	const amount = 1 << 30
	r := newRig(t, "", "a", "b")
	gw := r.lab.Host("a").Pod("gw")
	r.serve(gw, "vpn", "-pools", "10.60.0.0/24")
	for _, p := range []*lab.Pod{r.lab.Host("a").Pod("near"), r.lab.Host("b").Pod("far")} {
		reply := r.connect(p, "vpn")
		server := netip.AddrPortFrom(netip.MustParsePrefix(reply["peer_address"]).Addr(), 7000).String()
		var l net.Listener
		var out net.Conn
		err := gw.Do(func() (err error) {
			l, err = net.Listen("tcp", server)
			return err
		})
		if err == nil {
			err = p.Do(func() (err error) {
				out, err = net.Dial("tcp", server)
				return err
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = io.CopyN(out, zeros{}, amount) // the other end counts
			_ = out.Close()
		}()
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, in); n != amount || err != nil {
			t.Errorf("%s: %d bytes arrived: %v", reply["mechanism"], n, err)
		}
		_, _ = in.Close(), l.Close()
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// BenchmarkConnect measures what a client waits for, with up to 1,000 connections on the node, and what the manager needs.
func BenchmarkConnect(b *testing.B) {
	r := newRig(b, "", "a", "b")
	r.serve(r.lab.Host("a").Pod("gw"), "vpn", "-pools", "10.60.0.0/18")
	own, err := crossconnect.Own() // whose process asks: the namespace that the test has of its own
	if err != nil {
		b.Fatal(err)
	}
	for _, host := range []string{"a", "b"} {
		b.Run(map[string]string{"a": "local", "b": "remote"}[host], func(b *testing.B) {
			var took []time.Duration
			n := 0
			for b.Loop() {
				n++
				began := time.Now()
				_, err := nsmgrpc.Request(b.Context(), filepath.Join(r.directory(host), nsmgrpc.ClientSocket), nsm.Request{
					ID: fmt.Sprintf("%s-%d-%d", host, b.N, n), Service: "vpn", Namespace: own,
					Interfaces: []nsm.Interface{{Type: nsm.Kernel, Parameters: map[string]string{nsm.ParamAddressed: "true"}}},
				})
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
			b.ReportMetric(float64(r.residentKiB("nsm-"+host))/1024, "MiB")
		})
	}
}

// residentKiB is what a process has in memory.
func (r *rig) residentKiB(role string) (kib int) {
	r.Helper()
	for line := range strings.Lines(readFile(r, fmt.Sprintf("/proc/%d/status", r.process(role).PID))) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				r.Fatal(err)
			}
		}
	}
	return kib
}
