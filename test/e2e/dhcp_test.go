// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// A dhcpNode is a host whose pods' addresses come from a DHCP server that runs on it. A pod's interface is routed: its
// only neighbour is its host, so that is where a server must listen, or a relay to one.
type dhcpNode struct {
	t    *testing.T
	lab  *lab.Lab
	host *lab.Host
	dir  string
	conf []byte
	// daemon is the reference plugin's.
	daemon *lab.Process
}

// etcdPatience is how long a call may be at work with etcd.
const etcdPatience = 5 * time.Second

// newDHCPNode makes a host with the reference plugin's daemon, which gives up asking after a while.
func newDHCPNode(ctx context.Context, t *testing.T, patience time.Duration, agent bool) *dhcpNode {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	tools := filepath.Join(root, "bin", "tools")
	l := lab.ForTest(t, lab.Config{
		Hosts: []string{"a"}, BinDir: filepath.Join(root, "bin"), CNIPath: []string{tools}, Pools: []netip.Prefix{}, NoAgent: !agent, NoFsync: true,
	})
	n := &dhcpNode{t: t, lab: l, host: l.Host("a"), dir: t.TempDir()}
	socket := filepath.Join(n.host.RunDir(), "dhcp.sock")
	n.daemon, err = n.host.Start("dhcp", filepath.Join(tools, "dhcp"), "daemon", "-socketpath", socket,
		"-timeout", "1s", "-resendmax", "1s", "-resendtimeout", patience.String())
	if err != nil {
		t.Fatal(err)
	}
	eventually.Nil(t, "the daemon's socket", func() error { _, err := os.Stat(socket); return err })
	conf := n.host.PluginConf()
	conf["cniVersion"], conf["name"], conf["datastore_timeout_seconds"] = "1.1.0", "dhcpnet", int(etcdPatience/time.Second)
	conf["ipam"] = map[string]any{"type": "dhcp", "daemonSocketPath": socket}
	if n.conf, err = json.Marshal(conf); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *dhcpNode) call(ctx context.Context, verb, netns string, conf []byte) (lab.Reply, error) {
	return n.host.CNI(ctx, lab.Call{Verb: verb, ContainerID: "c1", IfName: "eth0", Netns: netns, Stdin: conf})
}

// link waits for the host's end of the pod's interface.
func (n *dhcpNode) link(ctx context.Context) (name string) {
	n.t.Helper()
	eventually.Nil(n.t, "the host's end of the link to be up", func() error {
		out, err := n.host.Exec(ctx, "ip", "-brief", "link", "show", "up", "type", "veth")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(out)) {
			if name, _, _ = strings.Cut(line, "@"); strings.HasPrefix(name, "cali") {
				return nil
			}
		}
		return errors.New("there is none")
	})
	return name
}

// serve starts a DHCP server that listens on one link, and returns how to read its log.
func (n *dhcpNode) serve(link string) (log func() string) {
	n.t.Helper()
	leases := filepath.Join(n.dir, "leases")
	conf := fmt.Sprintf("interface %s\nstart 10.65.7.10\nend 10.65.7.20\nmax_leases 11\nmin_lease 10\nlease_file %s\n"+
		"option subnet 255.255.255.0\noption router 10.65.7.1\noption lease 10\n", link, leases)
	path := filepath.Join(n.dir, "udhcpd.conf")
	if err := errors.Join(os.WriteFile(leases, nil, 0o644), os.WriteFile(path, []byte(conf), 0o644)); err != nil {
		n.t.Fatal(err)
	}
	server, err := n.host.Start("dhcpd", "busybox", "udhcpd", "-f", "-vv", "-a", "1", "-I", "169.254.1.1", path)
	if err != nil {
		n.t.Fatal(err)
	}
	return func() string { return fileText(n.t, server.Log) }
}

func fileText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// nothingLeft checks kernel and etcd.
func (n *dhcpNode) nothingLeft(ctx context.Context) {
	n.t.Helper()
	entries, _, err := n.lab.Dump(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := e.Key.(model.WorkloadEndpointKey); ok {
			n.t.Errorf("etcd still has %s", e.Path)
		}
	}
	for _, v := range invariants.Check(entries) {
		n.t.Errorf("invariant %d: %s", v.Invariant, v.Text)
	}
	eventually.Nil(n.t, "nothing is left on the host", n.host.CheckEmpty)
}

func TestDHCP(t *testing.T) {
	t.Run("without an agent", func(t *testing.T) { testDHCP(t, false) })
	// A pod asks before its endpoint is written, so before the firewall knows the interface.
	t.Run("with an agent", func(t *testing.T) { testDHCP(t, true) })
}

func testDHCP(t *testing.T, agent bool) {
	ctx := within(t, 2*time.Minute)
	n := newDHCPNode(ctx, t, eventually.Limit, agent)
	ns, err := n.lab.NewNamespace("pod")
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		reply lab.Reply
		err   error
	}
	added := make(chan answer, 1)
	go func() {
		reply, err := n.call(ctx, "ADD", ns.Path(), n.conf)
		added <- answer{reply, err}
	}()
	link := n.link(ctx)
	// It waits two seconds and more each time: etcd's own time is over by then.
	eventually.Nil(t, "the daemon to ask in vain", func() error {
		if said := fileText(t, n.daemon.Log); strings.Count(said, "retrying") < 4 {
			return fmt.Errorf("daemon:\n%s", said)
		}
		return nil
	})
	log := n.serve(link)
	a := <-added
	if a.err != nil {
		t.Fatalf("ADD: %v\nserver:\n%s", a.err, log())
	}
	var result types100.Result
	if err := json.Unmarshal(a.reply.Stdout, &result); err != nil {
		t.Fatal(err)
	}
	// The server's subnet and router are not the pod's: it is routed, like every pod.
	addr, ok := netip.AddrFromSlice(result.IPs[0].Address.IP)
	if addr = addr.Unmap(); !ok || len(result.IPs) != 1 || !netip.MustParsePrefix("10.65.7.0/24").Contains(addr) {
		t.Fatalf("addresses %v", result.IPs)
	}
	if mask, _ := result.IPs[0].Address.Mask.Size(); mask != 32 || len(result.Routes) != 1 ||
		result.Routes[0].Dst.String() != "0.0.0.0/0" || result.Routes[0].GW.String() != "169.254.1.1" {
		t.Errorf("result %s", a.reply.Stdout)
	}
	conf := slices.Concat(bytes.TrimSuffix(n.conf, []byte("}")), []byte(`,"prevResult":`), a.reply.Stdout, []byte("}"))
	if _, err := n.call(ctx, "CHECK", ns.Path(), conf); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if _, err := n.call(ctx, "STATUS", "", n.conf); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	// The daemon asks for more time in the pod's network, with the pod's address.
	granted := strings.Count(log(), "sending ACK")
	eventually.Nil(t, "the lease to be renewed", func() error {
		if now := strings.Count(log(), "sending ACK"); now == granted {
			return fmt.Errorf("server:\n%s", log())
		}
		return nil
	})
	for range 2 {
		if _, err := n.call(ctx, "DEL", ns.Path(), n.conf); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	// Not what the server got: the daemon sends from 0.0.0.0, which Linux hands to nobody but a server with a raw socket.
	if said := fileText(t, n.daemon.Log); !strings.Contains(said, "releasing lease") || strings.Contains(said, "failed to release") {
		t.Errorf("the lease was not given back; daemon:\n%s", said)
	}
	n.nothingLeft(ctx)
}

// TestDHCPWithoutServer is a network configuration with DHCP on a node where nothing answers.
func TestDHCPWithoutServer(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	n := newDHCPNode(ctx, t, 3*time.Second, true)
	ns, err := n.lab.NewNamespace("pod")
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.call(ctx, "ADD", ns.Path(), n.conf)
	var said *types.Error
	if !errors.As(err, &said) || !strings.HasPrefix(said.Msg, "IPAM plugin dhcp: ") || !strings.Contains(said.Details, "DHCP server or relay") {
		t.Errorf("got %+v: want an error that names the plugin and says where a server must be", said)
	}
	n.nothingLeft(ctx)
}
