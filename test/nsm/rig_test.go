// SPDX-License-Identifier: Apache-2.0

// Package nsm holds network service connections of labs to what they promise: with real managers, pods and packets.
package nsm

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/pki"
	"github.com/calico-go/calico/pkg/model"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// A rig is a lab with a manager on each host.
type rig struct {
	testing.TB
	lab    *lab.Lab
	bin    string
	dir    string
	ca     *pki.Authority
	client *clientv3.Client // nil: not needed yet
}

func newRig(t testing.TB, tags string, hosts ...string) *rig {
	t.Helper()
	r := &rig{TB: t, bin: lab.Build(t, lab.BuildOptions{Tags: tags}), dir: t.TempDir()}
	r.lab = lab.ForTest(t, lab.Config{Hosts: hosts, BinDir: r.bin, NoFsync: true, Pool: func(p *model.Pool) { p.Masquerade = true }})
	var err error
	if r.ca, err = pki.NewAuthority(r.dir, "ca", "managers"); err == nil {
		err = r.ca.Issue(r.dir, "manager", &x509.Certificate{
			DNSNames: []string{"calico-nsm"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		r.manage(h)
	}
	return r
}

func (r *rig) directory(host string) string { return filepath.Join(r.dir, host) }

// manage starts a host's manager, and returns when it serves.
func (r *rig) manage(host string, args ...string) *lab.Process {
	r.Helper()
	h := r.lab.Host(host)
	_ = os.Remove(filepath.Join(r.directory(host), "nsm.ligato.io.sock"))
	p, err := h.Start("nsm-"+host, filepath.Join(r.bin, "calico-nsm"), append([]string{"-node", host, "-address", h.IPv4().String(), "-directory", r.directory(host),
		"-ca-file", r.dir + "/ca.crt", "-cert-file", r.dir + "/manager.crt", "-key-file", r.dir + "/manager.key",
		"-etcd-endpoints", strings.Join(r.lab.StoreConfig().Endpoints, ",")}, args...)...)
	if err != nil {
		r.Fatal(err)
	}
	eventually.Nil(r, "the manager serves", func() error {
		_, err := os.Stat(filepath.Join(r.directory(host), "nsm.endpoint.io.sock"))
		if !p.Alive() {
			r.Fatalf("the manager has ended: %s", lab.Tail(p.Log, 5))
		}
		return err
	})
	return p
}

// process is what a lab's host or pod runs by a name.
func (r *rig) process(name string) *lab.Process {
	r.Helper()
	p, err := r.lab.Process(name)
	if err != nil {
		r.Fatal(err)
	}
	return p
}

// etcd is a client that knows no data model.
func (r *rig) etcd() *clientv3.Client {
	r.Helper()
	if r.client == nil {
		var err error
		if r.client, err = clientv3.New(clientv3.Config{Endpoints: r.lab.Members().Sockets(), Logger: zap.NewNop()}); err != nil {
			r.Fatal(err)
		}
		r.Cleanup(func() { _ = r.client.Close() })
	}
	return r.client
}

// serve starts an endpoint in a pod.
func (r *rig) serve(p *lab.Pod, service string, args ...string) *lab.Process {
	r.Helper()
	host := p.Host().Name()
	e, err := p.Start("nse-"+p.Name(), filepath.Join(r.bin, "nsmctl"), append([]string{"serve", "-service", service, "-name", p.Name(), "-directory", r.directory(host)}, args...)...)
	if err != nil {
		r.Fatal(err)
	}
	eventually.Nil(r, p.Name()+" serves", func() error {
		if log := lab.Tail(e.Log, 5); !strings.Contains(log, "serving "+service) {
			return fmt.Errorf("it says %q", log)
		}
		return nil
	})
	return e
}

// request asks for a connection as a pod does.
func (r *rig) request(ctx context.Context, p *lab.Pod, service string, args ...string) (map[string]string, error) {
	args = append([]string{"request", "-service", service, "-addressed", "-directory", r.directory(p.Host().Name())}, args...)
	out, err := p.Exec(ctx, filepath.Join(r.bin, "nsmctl"), args...)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var reply map[string]string
	err = json.Unmarshal(out, &reply)
	return reply, err
}

// connect is request that must succeed, and whose packets must arrive.
func (r *rig) connect(p *lab.Pod, service string, args ...string) map[string]string {
	r.Helper()
	reply, err := r.request(r.Context(), p, service, args...)
	if err != nil {
		r.Fatal(err)
	}
	r.reaches(p, reply)
	return reply
}

// reaches pings the endpoint of a connection.
func (r *rig) reaches(p *lab.Pod, reply map[string]string) {
	r.Helper()
	peer, err := netip.ParsePrefix(reply["peer_address"])
	if err != nil {
		r.Fatalf("%v: %v", reply, err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), eventually.Limit)
	defer cancel()
	if _, err := p.Namespace().Ping(ctx, peer.Addr()); err != nil {
		r.Fatal(err)
	}
}

// ip is what ip prints in a pod.
func (r *rig) ip(p *lab.Pod, args ...string) string {
	r.Helper()
	out, err := p.Exec(r.Context(), "ip", args...)
	if err != nil {
		r.Fatalf("ip %v: %v: %s", args, err, out)
	}
	return string(out)
}

// connections are how many a host's manager remembers.
func (r *rig) connections(host string) int {
	files, err := filepath.Glob(filepath.Join(r.directory(host), "connections", "*.json"))
	if err != nil {
		r.Fatal(err)
	}
	return len(files)
}

// nothingLeft waits until managers and pods have nothing of a connection.
func (r *rig) nothingLeft(hosts []string, pods ...*lab.Pod) {
	r.Helper()
	eventually.Nil(r, "nothing is left", func() error {
		for _, h := range hosts {
			if n := r.connections(h); n != 0 {
				return fmt.Errorf("%s remembers %d connections", h, n)
			}
		}
		for _, p := range pods {
			if out := r.ip(p, "-o", "link"); strings.Contains(out, "nsm") {
				return fmt.Errorf("%s has %s", p.Name(), out)
			}
		}
		return nil
	})
}

func readFile(tb testing.TB, path string) string {
	tb.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(content)
}
