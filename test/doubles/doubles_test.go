// SPDX-License-Identifier: Apache-2.0

package doubles

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/kernel/fabric"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// command changes the kernel as another program does.
func command(t *testing.T, line string) {
	t.Helper()
	args := strings.Fields(line)
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// firewall is what nft.Firewall and its double have in common, as the agent uses it.
type firewall interface {
	Configure(policy.Settings)
	Update(policy.Changes)
	Apply(context.Context) (nft.Report, error)
	Audit()
	Subscribe(context.Context) (<-chan nft.Event, error)
	Close() error
	Cut([]nft.Cut) error
	Uncut([]nft.Flow) error
	ReadCuts() ([]nft.Flow, error)
}

func TestTable(t *testing.T) {
	t.Run("kernel", func(t *testing.T) {
		netns.Host(t, func() {
			f, err := nft.Open(nft.Config{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
			if err != nil {
				t.Fatal(err)
			}
			testTable(t, f, func() { command(t, "nft add rule inet calico from-workload accept") })
		})
	})
	t.Run("double", func(t *testing.T) {
		d := NewTable()
		testTable(t, d, d.Tamper)
	})
}

// testTable asks of a firewall what the agent relies on.
func testTable(t *testing.T, f firewall, tamper func()) {
	// apply expects a report: whether the whole was compared, whether there were writes, how many repairs, and on which endpoints, each with a
	// part of its error.
	apply := func(name string, whole, writes bool, repairs int, programmed map[string]string) {
		t.Helper()
		r, err := f.Apply(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Whole != whole || r.Writes > 0 != writes || r.Repairs != repairs {
			t.Errorf("%s: whole %t, %d writes, %d repairs", name, r.Whole, r.Writes, r.Repairs)
		}
		for path, want := range programmed {
			if got, ok := r.Programmed[path]; !ok || (got == nil) != (want == "") || got != nil && !strings.Contains(got.Error(), want) {
				t.Errorf("%s: %s: %v, want %q", name, path, got, want)
			}
		}
		if len(r.Programmed) != len(programmed) {
			t.Errorf("%s: reports on %v, want %v", name, r.Programmed, programmed)
		}
	}
	endpoint := func(path, iface string) policy.Changes {
		return policy.Changes{Endpoints: map[string]*policy.Endpoint{path: {
			Path: path, Workload: true, Interface: iface, MAC: model.MAC{2, 0, 0, 0, 0, 1}, Addrs: []netip.Addr{netip.MustParseAddr("10.65.0.1")},
		}}}
	}
	if r, err := f.Apply(t.Context()); err == nil || !strings.Contains(err.Error(), "there are no prefixes of workload interfaces") || r.Writes != 0 {
		t.Errorf("before it is configured: %d writes, %v", r.Writes, err)
	}
	f.Configure(policy.Settings{Prefixes: []string{"cali"}, EndpointToHost: policy.ToHostDrop})
	apply("at first", true, true, 0, nil)
	apply("nothing to do", false, false, 0, nil)

	f.Update(endpoint("a", "cali1"))
	apply("an endpoint", false, true, 0, map[string]string{"a": ""})
	apply("it is reported once", false, false, 0, nil)
	f.Update(endpoint("a", "cali1"))
	apply("as it was", false, false, 0, map[string]string{"a": ""})
	f.Update(endpoint("b", "eth1"))
	apply("of another prefix", false, false, 0, map[string]string{"b": "interface eth1 begins with none of the prefixes of workload interfaces (cali): it is not enforced"})

	f.Update(endpoint("c", "cali3"))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := f.Apply(over); !errors.Is(err, context.Canceled) || !errors.Is(r.Programmed["c"], context.Canceled) || r.Writes != 0 {
		t.Errorf("interrupted: %v of %v", err, r.Programmed)
	}
	apply("after an interruption", true, true, 0, map[string]string{"c": ""})
	f.Update(policy.Changes{Endpoints: map[string]*policy.Endpoint{"c": nil}})
	apply("gone", false, true, 0, map[string]string{"c": ""})

	f.Configure(policy.Settings{Prefixes: []string{"cali"}, EndpointToHost: policy.ToHostDrop})
	apply("settings as they were", false, false, 0, nil)
	f.Configure(policy.Settings{Prefixes: []string{"eth"}, EndpointToHost: policy.ToHostDrop})
	apply("other settings", false, true, 0, map[string]string{"a": "begins with none of the prefixes", "b": ""})
	f.Configure(policy.Settings{Prefixes: []string{"cali"}, EndpointToHost: policy.ToHostDrop})
	apply("the former settings", false, true, 0, map[string]string{"a": "", "b": "begins with none of the prefixes"})

	former, cease := context.WithCancel(t.Context())
	if _, err := f.Subscribe(former); err != nil {
		t.Fatal(err)
	}
	cease() // which may come to pass only after the next one has subscribed
	ctx, end := context.WithCancel(t.Context())
	events, err := f.Subscribe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f.Audit()
	apply("an audit that finds nothing", true, false, 0, nil)
	tamper()
	eventually.Receive(t, "an event", events)
	apply("nobody looks", false, false, 0, nil)
	f.Audit()
	apply("a repair", true, true, 1, nil)
	f.Audit()
	apply("after the repair", true, false, 0, nil)
	end()
	for range events { // until it is closed
	}

	flow := nft.Flow{Protocol: model.ProtocolTCP, Src: netip.MustParseAddr("10.65.0.1"), Dst: netip.MustParseAddr("10.65.0.2"), SrcPort: 1, DstPort: 80}
	if err := f.Cut([]nft.Cut{{Flow: flow, Lasts: time.Hour}}); err != nil {
		t.Error(err)
	}
	if got, err := f.ReadCuts(); err != nil || !cmp.Equal([]nft.Flow{flow}, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
		t.Errorf("cut: %v, %v", got, err)
	}
	if err := f.Uncut([]nft.Flow{flow}); err != nil {
		t.Error(err)
	}
	if got, err := f.ReadCuts(); err != nil || len(got) != 0 {
		t.Errorf("cut no more: %v, %v", got, err)
	}
	if err := f.Uncut([]nft.Flow{flow}); err == nil {
		t.Error("what isn't cut can be let go")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// routes is what fabric.Fabric and its double have in common, as the agent uses it.
type routes interface {
	Apply(context.Context, plan.State) (fabric.Report, error)
	ApplySome(context.Context, plan.Changes) (fabric.Report, error)
	Subscribe(context.Context) (<-chan struct{}, error)
	Close()
}

func TestFabric(t *testing.T) {
	t.Run("kernel", func(t *testing.T) {
		netns.Host(t, func() {
			command(t, "ip link add eth0 type veth peer name far0")
			command(t, "ip link set far0 up")
			command(t, "ip link set eth0 up")
			command(t, "ip addr add 192.0.2.1/24 dev eth0")
			f, err := fabric.New(fabric.Config{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
			if err != nil {
				t.Fatal(err)
			}
			testFabric(t, f, func() { command(t, "ip route del 10.1.0.0/26") })
		})
	})
	t.Run("double", func(t *testing.T) {
		d := &Fabric{Links: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
		testFabric(t, d, d.Tamper)
	})
}

// testFabric asks of routes to other hosts what the agent relies on. tamper takes away the one to 10.1.0.0/26.
func testFabric(t *testing.T, f routes, tamper func()) {
	defer f.Close()
	route := func(dst, gateway string) plan.Route {
		return plan.Route{Destination: netip.MustParsePrefix(dst), Kind: plan.Unicast, Hops: []plan.Hop{{Gateway: netip.MustParseAddr(gateway), Device: "eth0"}}, Origin: plan.FromHost}
	}
	hole := plan.Route{Destination: netip.MustParsePrefix("10.1.9.0/26"), Kind: plan.Blackhole, Origin: plan.FromBlock}
	expect := func(name string, writes bool, repairs int, problem string) func(fabric.Report, error) {
		return func(r fabric.Report, err error) {
			t.Helper()
			var subjects string
			for _, p := range r.Problems {
				subjects += p.Subject
			}
			if err != nil || r.Writes > 0 != writes || r.Repairs != repairs || subjects != problem {
				t.Errorf("%s: %+v, %v: want writes %t, %d repairs, problems of %q", name, r, err, writes, repairs, problem)
			}
		}
	}
	some := func(routes ...plan.Route) plan.Changes {
		c := plan.Changes{Routes: map[netip.Prefix]*plan.Route{}}
		for _, r := range routes {
			c.Routes[r.Destination] = &r
		}
		return c
	}
	near, far := route("10.1.0.0/26", "192.0.2.2"), route("10.1.1.0/26", "198.51.100.1")
	st := plan.State{Routes: map[netip.Prefix]plan.Route{near.Destination: near, hole.Destination: hole}}
	expect("at first", true, 0, "")(f.Apply(t.Context(), st))
	expect("nothing to do", false, 0, "")(f.Apply(t.Context(), st))
	expect("one more", true, 0, "")(f.ApplySome(t.Context(), some(route("10.1.2.0/26", "192.0.2.3"))))
	expect("as it was", false, 0, "")(f.ApplySome(t.Context(), some(route("10.1.2.0/26", "192.0.2.3"))))
	expect("it moves", true, 0, "")(f.ApplySome(t.Context(), some(route("10.1.2.0/26", "192.0.2.4"))))
	expect("one that nothing leads to", false, 0, "10.1.1.0/26")(f.ApplySome(t.Context(), some(far)))
	expect("of that nobody is told who asks for another", true, 0, "")(f.ApplySome(t.Context(), some(route("10.1.3.0/26", "192.0.2.3"))))
	gone := plan.Changes{Routes: map[netip.Prefix]*plan.Route{far.Destination: nil}}
	if _, err := f.ApplySome(t.Context(), gone); err != nil {
		t.Error(err)
	}

	over, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := f.Apply(over, st); !errors.Is(err, context.Canceled) || r.Writes != 0 {
		t.Errorf("interrupted: %+v, %v", r, err)
	}
	expect("what an interruption left", true, 0, "")(f.Apply(t.Context(), st))

	if r, err := f.ApplySome(over, some(route("10.1.4.0/26", "192.0.2.3"))); !errors.Is(err, context.Canceled) || r.Writes != 0 {
		t.Errorf("interrupted: %+v, %v", r, err)
	}
	expect("what isn't asked for stays", false, 0, "")(f.ApplySome(t.Context(), some(near)))
	expect("a whole Apply mends it", true, 0, "")(f.Apply(t.Context(), plan.State{Routes: map[netip.Prefix]plan.Route{near.Destination: near, hole.Destination: hole, netip.MustParsePrefix("10.1.4.0/26"): route("10.1.4.0/26", "192.0.2.3")}}))
	expect("as before", true, 0, "")(f.Apply(t.Context(), st))

	former, cease := context.WithCancel(t.Context())
	if _, err := f.Subscribe(former); err != nil {
		t.Fatal(err)
	}
	cease() // which may come to pass only after the next one has subscribed
	ctx, end := context.WithCancel(t.Context())
	signals, err := f.Subscribe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tamper()
	eventually.Receive(t, "a signal", signals)
	expect("a repair", true, 1, "")(f.Apply(t.Context(), st))
	expect("after the repair", false, 0, "")(f.Apply(t.Context(), st))
	end()
	for range signals { // until it is closed
	}
}
