// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// TestTogether has the three roles talk over a network that delays, breaks and restarts at random, while endpoints and groups
// change. In the end every agent was told what a slow evaluator says.
func TestTogether(t *testing.T) {
	n := uint64(60)
	if testing.Short() {
		n = 6
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newSimulation(seed)
			for range 120 {
				s.step()
			}
			for range 400 { // quiet: all heals
				s.now = s.now.Add(time.Second)
				s.settle()
			}
			s.check(t)
		})
	}
}

var simHosts = []string{"h0", "h1", "h2"}

// agent is what a Felix has told its engine, and saved.
type agent struct {
	felix   *Felix
	saved   map[string][]byte
	entries map[string]model.Entry
	topics  map[string]bool
	n       int
}

type simulation struct {
	rand    *rand.Rand
	now     time.Time
	world   World
	plugin  *Plugin
	manager *Manager
	agents  map[string]*agent
	queues  map[string][]func() // deliveries, in order of each connection
	breaks  map[string]int      // how often a connection broke: what was sent before is lost
}

func newSimulation(seed uint64) *simulation {
	s := &simulation{rand: rand.New(rand.NewPCG(seed, 7)), now: begin, agents: map[string]*agent{}, queues: map[string][]func(){}, breaks: map[string]int{}, world: worldOf(nil)}
	for _, h := range simHosts {
		s.agents[h] = &agent{saved: map[string][]byte{}}
	}
	s.startPlugin()
	s.startManager()
	for _, h := range simHosts {
		s.startFelix(h)
	}
	return s
}

// send delivers something later, unless the connection breaks before.
func (s *simulation) send(connection string, f func()) {
	n := s.breaks[connection]
	s.queues[connection] = append(s.queues[connection], func() {
		if s.breaks[connection] == n {
			f()
		}
	})
}

func (s *simulation) cut(connection string) { s.breaks[connection]++ }

func (s *simulation) startPlugin() {
	s.plugin = NewPlugin(PluginConfig{Prefix: "tap", Serves: func(string) bool { return true }})
	for _, h := range simHosts {
		s.cut("9901 " + h)
		s.cut("9902 " + h)
	}
	s.cut("9903")
	s.cut("9904")
	s.do("plugin", s.plugin.Start(s.now))
	s.do("plugin", s.plugin.Set(s.now, s.clone()))
	if s.manager != nil {
		s.connectNetwork()
	}
}

// connectNetwork has the manager's subscription arrive at the plugin, and the manager know it.
func (s *simulation) connectNetwork() {
	s.send("9904", func() { s.do("plugin", s.plugin.Subscribed(s.now, TopicGroups)) })
	s.send("9904", func() { s.do("manager", s.manager.Connected(s.now)) })
}

func (s *simulation) startManager() {
	s.manager = NewManager(ManagerTiming{})
	s.cut("9903")
	s.cut("9904")
	s.do("manager", s.manager.Start(s.now))
	s.connectNetwork()
	for _, h := range simHosts {
		s.cut("9905 " + h)
		s.cut("9906 " + h)
		if s.agents[h].felix != nil {
			s.subscribe(h)
		}
	}
}

// subscribe has a Felix's subscriptions arrive at the manager.
func (s *simulation) subscribe(h string) {
	for _, topic := range slices.Sorted(maps.Keys(s.agents[h].topics)) {
		s.send("9906 "+h, func() { s.do("manager", s.manager.Subscribed(s.now, topic)) })
	}
	s.send("9906 "+h, func() { s.do(h, s.agents[h].felix.Subscribed(s.now)) })
}

func (s *simulation) startFelix(h string) {
	a := s.agents[h]
	a.topics, a.entries = map[string]bool{}, map[string]model.Entry{}
	for _, port := range []string{"9901 ", "9902 ", "9905 ", "9906 "} {
		s.cut(port + h)
	}
	a.felix = NewFelix(FelixConfig{Hostname: h, Saved: maps.Clone(a.saved), NewID: func() string { a.n++; return fmt.Sprint(h, "-", a.n) }})
	s.do(h, a.felix.Start(s.now))
	s.subscribe(h)
}

// do does what a role wants.
func (s *simulation) do(who string, actions []Action) {
	a := s.agents[who]
	for _, action := range actions {
		switch x := action.(type) {
		case Reply:
			x.From.(func([]byte))(x.Body)
		case Ask:
			s.ask(who, x)
		case Publish:
			s.publish(who, x)
		case Subscribe:
			if a != nil {
				a.topics[x.Topic] = true
				s.send("9906 "+who, func() { s.do("manager", s.manager.Subscribed(s.now, x.Topic)) })
			}
		case Unsubscribe:
			delete(a.topics, x.Topic)
		case Reconnect:
			switch {
			case who == "manager":
				s.cut("9903")
				s.cut("9904")
				s.connectNetwork()
			case x.Peer == PeerPlugin:
				s.cut("9901 " + who)
			default:
				s.cut("9905 " + who)
				s.cut("9906 " + who)
				s.subscribe(who)
			}
		case Connect:
			s.cut("9902 " + x.Host)
		case Disconnect:
			s.cut("9902 " + x.Host)
		case Save:
			if x.Data == nil {
				delete(a.saved, x.Name)
			} else {
				a.saved[x.Name] = x.Data
			}
		case Apply:
			if x.Update.Resync {
				clear(a.entries)
			}
			for _, e := range x.Update.Entries {
				if e.Exists() {
					a.entries[e.Path] = e
				} else {
					delete(a.entries, e.Path)
				}
			}
		}
	}
}

func (s *simulation) ask(who string, x Ask) {
	switch {
	case who == "plugin":
		c := "9902 " + x.Peer
		s.send(c, func() {
			s.do(x.Peer, s.agents[x.Peer].felix.Request(s.now, func(b []byte) {
				s.send(c, func() { s.do("plugin", s.plugin.HostReply(s.now, x.Peer, b)) })
			}, x.Body))
		})
	case who == "manager":
		s.send("9903", func() {
			s.do("plugin", s.plugin.NetworkRequest(s.now, func(b []byte) { s.send("9903", func() { s.do("manager", s.manager.PluginReply(s.now, b)) }) }, x.Body))
		})
	case x.Peer == PeerPlugin:
		c := "9901 " + who
		s.send(c, func() {
			s.do("plugin", s.plugin.Request(s.now, func(b []byte) { s.send(c, func() { s.do(who, s.agents[who].felix.PluginReply(s.now, b)) }) }, x.Body))
		})
	default:
		c := "9905 " + who
		s.send(c, func() {
			s.do("manager", s.manager.Request(s.now, func(b []byte) { s.send(c, func() { s.do(who, s.agents[who].felix.ACLReply(s.now, b)) }) }, x.Body))
		})
	}
}

func (s *simulation) publish(who string, x Publish) {
	if who == "plugin" {
		s.send("9904", func() { s.do("manager", s.manager.Published(s.now, x.Topic, x.Body)) })
		return
	}
	for _, h := range simHosts {
		s.send("9906 "+h, func() {
			if s.agents[h].topics[x.Topic] {
				s.do(h, s.agents[h].felix.Published(s.now, x.Topic, x.Body))
			}
		})
	}
}

// settle delivers all that is on its way, and lets each role know the time.
func (s *simulation) settle() {
	s.do("plugin", s.plugin.Tick(s.now))
	s.do("manager", s.manager.Tick(s.now))
	for _, h := range simHosts {
		s.do(h, s.agents[h].felix.Tick(s.now))
	}
	for s.deliver() {
	}
}

// deliver delivers the next of a connection.
func (s *simulation) deliver() bool {
	var busy []string
	for _, c := range slices.Sorted(maps.Keys(s.queues)) {
		if len(s.queues[c]) > 0 {
			busy = append(busy, c)
		}
	}
	if len(busy) == 0 {
		return false
	}
	c := busy[s.rand.IntN(len(busy))]
	f := s.queues[c][0]
	s.queues[c] = s.queues[c][1:]
	f()
	return true
}

func (s *simulation) clone() World {
	w := World{Endpoints: map[string]map[string]Endpoint{}, Groups: maps.Clone(s.world.Groups)}
	for h, all := range s.world.Endpoints {
		w.Endpoints[h] = maps.Clone(all)
	}
	return w
}

// step has something happen.
func (s *simulation) step() {
	r := s.rand
	switch r.IntN(24) {
	case 0:
		s.startPlugin()
	case 1:
		s.startManager()
	case 2:
		s.startFelix(simHosts[r.IntN(3)])
	case 3:
		h := simHosts[r.IntN(3)] // its subscriptions are lost with what was published, and made anew
		s.cut("9906 " + h)
		s.subscribe(h)
	case 4:
		s.cut("9902 " + simHosts[r.IntN(3)])
	case 5, 6, 7:
		s.now = s.now.Add(time.Duration(r.IntN(20)) * time.Second)
		s.settle()
	case 8, 9, 10, 11:
		s.change()
	default:
		for range r.IntN(30) {
			s.deliver()
		}
	}
}

func simID(i int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", i) }

// change changes the world.
func (s *simulation) change() {
	r := s.rand
	i := r.IntN(8)
	for _, h := range simHosts {
		delete(s.world.Endpoints[h], simID(i))
	}
	if r.IntN(4) > 0 {
		h := simHosts[r.IntN(3)]
		if s.world.Endpoints[h] == nil {
			s.world.Endpoints[h] = map[string]Endpoint{}
		}
		ep := testEndpoint(simID(i), fmt.Sprintf("tap%d-%d", i, r.IntN(2)), fmt.Sprintf("10.65.0.%d", i+1))
		ep.Enabled = r.IntN(3) > 0
		s.world.Endpoints[h][ep.ID] = ep
	}
	g := Group{Members: map[string][]netip.Addr{}}
	for j := range 8 {
		if r.IntN(3) == 0 {
			g.Members[simID(j)] = []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.65.0.%d", j+1))}
		}
	}
	for range r.IntN(3) {
		rule := Rule{Group: fmt.Sprint("g", r.IntN(4)), Protocol: model.ProtocolTCP, Port: model.Port{Min: 80, Max: uint16(80 + r.IntN(2))}}
		if r.IntN(4) == 0 {
			rule.Group, rule.CIDR = "", netip.MustParsePrefix("10.65.0.0/30")
		}
		if r.IntN(2) == 0 {
			g.Rules.Inbound = append(g.Rules.Inbound, rule)
		} else {
			g.Rules.Outbound = append(g.Rules.Outbound, rule)
		}
	}
	name := fmt.Sprint("g", r.IntN(4))
	if len(g.Members) == 0 {
		delete(s.world.Groups, name)
	} else {
		s.world.Groups[name] = g
	}
	s.do("plugin", s.plugin.Set(s.now, s.clone()))
}

// allows is the slow evaluator: whether some group of an endpoint allows it to talk with an address.
func (w World) allows(id string, other netip.Addr, port uint16, in bool) bool {
	for _, g := range w.Groups {
		if _, member := g.Members[id]; !member {
			continue
		}
		rules := g.Rules.Inbound
		if !in {
			rules = g.Rules.Outbound
		}
		for _, r := range rules {
			if port < r.Port.Min || port > r.Port.Max {
				continue
			}
			if r.CIDR.IsValid() && r.CIDR.Contains(other) {
				return true
			}
			for _, addrs := range w.Groups[r.Group].Members {
				if slices.Contains(addrs, other) {
					return true
				}
			}
		}
	}
	return false
}

// ruled is what rules of the data model say of the same.
func ruled(rules []model.Rule, other netip.Addr, port uint16, in bool) bool {
	return slices.ContainsFunc(rules, func(r model.Rule) bool {
		nets := r.Match.SrcNets
		if !in {
			nets = r.Match.DstNets
		}
		return r.IPVersion == 4 && (len(nets) == 0 || slices.ContainsFunc(nets, func(p netip.Prefix) bool { return p.Contains(other) })) &&
			slices.ContainsFunc(r.Match.DstPorts, func(p model.Port) bool { return p.Min <= port && port <= p.Max })
	})
}

func (s *simulation) check(t *testing.T) {
	t.Helper()
	for _, h := range simHosts {
		has := map[string]model.WorkloadEndpoint{}
		rules := map[string]model.Rules{}
		for _, e := range s.agents[h].entries {
			switch key := e.Key.(type) {
			case model.WorkloadEndpointKey:
				has[key.Endpoint], _ = e.Value.(model.WorkloadEndpoint)
			case model.ProfileRulesKey:
				rules[key.Profile], _ = e.Value.(model.Rules)
			}
		}
		if len(has) != len(s.world.Endpoints[h]) {
			t.Errorf("%s has %d endpoints, want %d", h, len(has), len(s.world.Endpoints[h]))
		}
		for id, want := range s.world.Endpoints[h] {
			got := has[id]
			profile := strings.Join(got.ProfileIDs, " ")
			if spec, err := want.model(profile); err != nil || !got.Equal(spec) {
				t.Errorf("%s: endpoint %s is %+v, want %+v", h, id, got, spec)
				continue
			}
			for j := range 8 {
				other := netip.MustParseAddr(fmt.Sprintf("10.65.0.%d", j+1))
				for port := uint16(79); port < 83; port++ {
					for _, in := range []bool{true, false} {
						list := rules[profile].Inbound
						if !in {
							list = rules[profile].Outbound
						}
						if got, want := ruled(list, other, port, in), s.world.allows(id, other, port, in); got != want {
							t.Fatalf("%s: endpoint %s, %s port %d, inbound %t: allowed %t, want %t", h, id, other, port, in, got, want)
						}
					}
				}
			}
		}
	}
}

func FuzzMessages(f *testing.F) {
	for _, s := range []string{created, updated, destroyed, aclUpdate, aclAnswer, resyncState, fmt.Sprintf(answer, 1), string(groupUpdate("g", `{"group":"g"}`, `{"cidr":"::/0","protocol":58,"icmp_type":"1"}`, `"a":["fd00::1"]`))} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		felix := newFelix()
		felix.Start(begin)
		felix.PluginReply(begin, b)
		felix.PluginReply(begin, fmt.Appendf(nil, answer, 9))
		felix.Request(begin, 1, []byte(created))
		felix.Request(begin, 1, b)
		felix.Published(begin, idA, b)
		felix.ACLReply(begin, b)
		m := NewManager(ManagerTiming{})
		m.Start(begin)
		m.Published(begin, TopicGroups, b)
		m.Request(begin, 1, b)
		m.PluginReply(begin, b)
		p := plugged(worldOf(map[string][]Endpoint{"h1": {testEndpoint(idA, "tapa", "10.65.0.2")}}))
		p.Request(begin, 1, []byte(resyncState))
		p.HostReply(begin, "h1", b)
		p.Request(begin, 1, b)
		p.NetworkRequest(begin, 1, b)
		// A rule that is read is written as one that reads the same.
		if r, err := parseRule(b); err == nil {
			text := encode(r)
			if again, err := parseRule(text); err != nil || string(encode(again)) != string(text) {
				t.Errorf("%s is read as %s: %v", text, encode(again), err)
			}
		}
	})
}
