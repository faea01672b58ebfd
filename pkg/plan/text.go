// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// String returns the route as `ip route` shows it.
func (r Route) String() string {
	var b strings.Builder
	if r.Kind == Blackhole {
		fmt.Fprintf(&b, "%s ", Blackhole)
	}
	b.WriteString(r.Destination.String())
	if len(r.Hops) == 1 {
		fmt.Fprintf(&b, " %s", r.hop(0))
	}
	if r.Source.IsValid() {
		fmt.Fprintf(&b, " src %s", r.Source)
	}
	if len(r.Hops) > 1 {
		for i := range r.Hops {
			fmt.Fprintf(&b, " nexthop %s weight 1", r.hop(i))
		}
	}
	return b.String()
}

// hop marks a gateway of another family than the destination.
func (r Route) hop(i int) string {
	h := r.Hops[i]
	if r.Destination.Addr().Is4() && h.Gateway.Is6() {
		return strings.Replace(h.String(), "via ", "via inet6 ", 1)
	}
	return h.String()
}

// String returns the hop as `ip route` shows it.
func (h Hop) String() string {
	s := fmt.Sprintf("via %s dev %s", h.Gateway, h.Device)
	if h.OnLink {
		s += " onlink"
	}
	return s
}

// String returns the tunnel as `ip -d link` and `ip address` show it, in one line.
func (t Tunnel) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: mtu %d", t.Device, t.MTU)
	switch t.Kind {
	case IPIP:
		fmt.Fprintf(&b, " ipip local %s", t.Local)
	default:
		fmt.Fprintf(&b, " link/ether %s vxlan id %d local %s", t.MAC, t.VNI, t.Local)
	}
	if t.Parent != "" {
		fmt.Fprintf(&b, " dev %s", t.Parent)
	}
	if t.Kind != IPIP {
		fmt.Fprintf(&b, " dstport %d nolearning", t.Port)
	}
	if t.Addr.IsValid() {
		fmt.Fprintf(&b, " inet %s", single(t.Addr))
	} else {
		fmt.Fprintf(&b, " wants an address of %s by %s", join(t.Pools), t.Handle)
	}
	return b.String()
}

func join[T any](all []T) string {
	if len(all) == 0 {
		return "none"
	}
	words := make([]string, len(all))
	for i, v := range all {
		words[i] = fmt.Sprint(v)
	}
	return strings.Join(words, ", ")
}

// String returns an entry of `bridge fdb` and one of `ip neigh`.
func (r Remote) String() string {
	device := ""
	for _, t := range tunnelTypes() {
		if t.kind == r.Tunnel {
			device = t.device
		}
	}
	return fmt.Sprintf("%s dev %s dst %s self permanent; %s dev %s lladdr %s PERMANENT", r.MAC, device, r.Outer, r.Gateway, device, r.MAC)
}

// String returns text similar to BIRD's configuration.
func (s Speaker) String() string {
	if s.AS == 0 {
		return "no BGP"
	}
	text := fmt.Sprintf("router id %s; as %s; port %d; hold time %g; keepalive time %g; graceful restart time %g; import within %s",
		s.RouterID, s.AS, s.ListenPort, s.HoldTime.Seconds(), s.KeepaliveTime.Seconds(), s.RestartTime.Seconds(), join(s.Import))
	if len(s.Listen) > 0 {
		text += "; listen " + join(s.Listen)
	}
	if s.ClusterID.IsValid() {
		text += fmt.Sprintf("; rr cluster id %s", s.ClusterID)
	}
	for _, c := range s.Communities {
		text += fmt.Sprintf("; community %s for %s", c.Value, c.CIDR)
	}
	return text
}

// String returns text similar to BIRD's configuration. It contains the name of a password's file, never the password.
func (n Neighbour) String() string {
	var b strings.Builder
	source := "any"
	if n.Local.IsValid() {
		source = n.Local.String()
	}
	fmt.Fprintf(&b, "neighbor %s as %s; source address %s; # %s", n.Address, n.AS, source, n.Kind)
	if n.Host != "" {
		fmt.Fprintf(&b, " %s", n.Host)
	}
	if n.Multihop > 0 {
		fmt.Fprintf(&b, "; multihop %d", n.Multihop)
	}
	if n.Client {
		b.WriteString("; rr client")
	}
	if n.Reflector {
		b.WriteString("; rr as well")
	}
	if n.Options.NextHop == model.NextHopSelf {
		b.WriteString("; next hop self")
	}
	if n.PasswordFile != "" {
		fmt.Fprintf(&b, "; password from %s", n.PasswordFile)
	}
	filters := func(name string, all []model.RouteFilter) {
		for _, f := range all {
			fmt.Fprintf(&b, "; %s %s", name, f)
		}
	}
	filters("import", n.Import)
	filters("export", n.Export)
	return b.String()
}

// String returns the route as advertised to neighbours.
func (a Advertisement) String() string {
	s := fmt.Sprintf("route %s next hop %s", a.Prefix, a.NextHop)
	if a.NoMesh {
		s += ", not to the mesh"
	}
	return s
}

// String returns the problem as one sentence.
func (p Problem) String() string { return fmt.Sprintf("%s %s: %s", p.Kind, p.Subject, p.Reason) }

// String returns the complete state in sorted sections.
func (st State) String() string {
	var b strings.Builder
	section(&b, "routes", st.Routes, comparePrefixes)
	fmt.Fprintln(&b, "# tunnels")
	for _, t := range st.Tunnels {
		fmt.Fprintln(&b, t)
	}
	for _, handle := range st.Releases {
		fmt.Fprintln(&b, "release", handle)
	}
	section(&b, "fdb and neighbours", st.Remotes, compareRemotes)
	fmt.Fprintln(&b, "# hosts")
	for _, a := range slices.SortedFunc(maps.Keys(st.Hosts), netip.Addr.Compare) {
		fmt.Fprintln(&b, a, st.Hosts[a])
	}
	fmt.Fprintf(&b, "# mtu\nuplink %d pods %d\n# bgp\n%s\n", st.MTU.Uplink, st.MTU.Pods, st.Speaker)
	section(&b, "neighbours", st.Neighbours, netip.Addr.Compare)
	section(&b, "advertisements", st.Advertisements, comparePrefixes)
	section(&b, "problems", st.Problems, compareProblems)
	return b.String()
}

func section[K comparable, V fmt.Stringer](b *strings.Builder, name string, all map[K]V, compare func(x, y K) int) {
	fmt.Fprintf(b, "# %s\n", name)
	for _, k := range slices.SortedFunc(maps.Keys(all), compare) {
		fmt.Fprintln(b, all[k])
	}
}

func compareRemotes(x, y RemoteID) int {
	return cmp.Or(x.Outer.Compare(y.Outer), cmp.Compare(x.Tunnel, y.Tunnel))
}

func compareProblems(x, y ProblemID) int {
	return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Subject, y.Subject))
}
