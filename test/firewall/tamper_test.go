// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/test/long"
)

// listing is our table as the nft tool shows it, in an order of its own, without
// what was cut.
func (r *rig) listing() string {
	r.Helper()
	text, err := command1(r.Context(), r.self, "nft", "--stateless", "list", "table", "inet", "calico")
	if err != nil {
		return "" // there is none
	}
	blocks := strings.Split(strings.TrimSuffix(text, "}\n"), "\n\t}\n")
	for i, b := range blocks {
		blocks[i] = elements.ReplaceAllStringFunc(b, func(list string) string {
			parts := strings.FieldsFunc(elements.FindStringSubmatch(list)[1], func(r rune) bool { return r == ',' })
			for i := range parts {
				parts[i] = strings.TrimSpace(parts[i])
			}
			slices.Sort(parts)
			return strings.Join(parts, ", ")
		})
		blocks[i] = strings.TrimPrefix(strings.TrimPrefix(blocks[i], "table inet calico {"), "\n")
	}
	blocks = slices.DeleteFunc(blocks, func(b string) bool { return strings.HasPrefix(b, "\tset cut") })
	slices.Sort(blocks)
	return strings.Join(blocks, "\n")
}

var elements = regexp.MustCompile(`elements = \{([^}]*)\}`)

// tamperings are what somebody may do to our table.
func (r *rig) tamperings(server, client *place) map[string][]string {
	r.Helper()
	find := func(in, what string) string {
		r.Helper()
		found := regexp.MustCompile(what).FindStringSubmatch(in)
		if found == nil {
			r.Fatalf("there is no %s in:\n%s", what, in)
		}
		return found[1]
	}
	element := fmt.Sprintf("{ %q }", r.spec(server).Name)
	to := find(r.run(r.self, "nft", "get", "element", "inet", "calico", "workloads-to", element), `: jump (to-[0-9a-f]+)`)
	handle := find(r.run(r.self, "nft", "-a", "list", "chain", "inet", "calico", "to-workload"),
		`drop comment "no policy or profile allows it" # handle (\d+)`)
	return map[string][]string{
		"flush table":              {"flush table inet calico"},
		"delete table":             {"delete table inet calico"},
		"flush ruleset":            {"flush ruleset"},
		"delete a rule":            {"delete rule inet calico to-workload handle " + handle},
		"insert a rule in forward": {"insert rule inet calico forward-calico accept"},
		"insert a rule in a chain": {fmt.Sprintf("insert rule inet calico %s accept", to)},
		"delete an interface":      {fmt.Sprintf("delete element inet calico workloads { %q }", r.spec(client).Name)},
		"delete an address":        {fmt.Sprintf("delete element inet calico sources4 { %q . %s }", r.spec(client).Name, client.addrs[0])},
		"add a chain and a set":    {"add chain inet calico mine", "add set inet calico mine { type ipv4_addr; }"},
		"put the table to sleep":   {"add table inet calico { flags dormant; }"},
	}
}

// TestTampering changes our table by hand.
func TestTampering(t *testing.T) {
	long.Test(t)
	// The probe's workloads would come after the listing that the table is compared with.
	r := newRigIn(t, lab.Config{Hostile: true, AgentEnv: []string{"FELIX_PROBEWORKLOADPATH=false"}})
	server, client, stranger := r.population()
	b := r.background(server, client, stranger)
	want := r.listing()
	// It takes an event to bring a repair about: no audit comes in time.
	r.put(configPath("NftablesRefreshInterval"), "3600")
	r.enforced()
	const others = "table inet others {\n\tset mine {\n\t\ttype ipv4_addr\n\t\telements = { 192.0.2.1 }\n\t}\n\n\tchain mine {\n\t\tip saddr @mine drop\n\t}\n}\n"
	other := func() string {
		out, _ := command1(r.Context(), r.self, "nft", "--stateless", "list", "table", "inet", "others") // "" = none
		return out
	}
	foreign := filepath.Join(t.TempDir(), "others")
	if err := os.WriteFile(foreign, []byte(others), 0o600); err != nil {
		t.Fatal(err)
	}

	repairs := r.metric("calico_node_firewall_drift_repaired_total")
	tamperings := r.tamperings(server, client)
	for _, name := range sortedKeys(tamperings) {
		if other() == "" {
			r.run(r.self, "nft", "-f", foreign)
		}
		// The rule's handle is another since the table was made anew.
		for _, command := range r.tamperings(server, client)[name] {
			r.run(r.self, "nft", command)
		}
		r.until(name+": the table is as it was", func() bool { return r.listing() == want })
		if got := other(); got != others && name != "flush ruleset" {
			t.Errorf("%s: another table was touched:\n%s", name, got)
		}
		r.until(name+": the metric counts a repair", func() bool {
			return r.metric("calico_node_firewall_drift_repaired_total") > repairs
		})
		repairs = r.metric("calico_node_firewall_drift_repaired_total")
		r.probe(name, expect{client, server, "tcp 80", true}, expect{stranger, server, "udp 80", false})
	}
	for _, s := range b.never {
		s.begin()
	}
	r.pause(b.never[0], 100)
	r.nothing("after repairs", b)

	// What began while the firewall was away is over with it.
	r.stopped()
	r.run(r.self, "nft", "delete table inet calico")
	// The tracker, off without our table, hears the client first of the one, the server of the other.
	crept := []*stream{
		r.transfer(stranger, server, netip.AddrPortFrom(server.addrs[0], 5000), true),
		r.transfer(stranger, server, netip.AddrPortFrom(server.addrs[0], 5001), false),
	}
	r.flows("without a firewall", crept...)
	if err := r.host.Agent().Resume(); err != nil {
		t.Fatal(err)
	}
	r.until("what crept in is cut", func() bool { return r.quiet(b.never[0], append(slices.Clone(crept), b.never[:2]...)) })
	r.until("the table is as it was", func() bool { return r.listing() == want })
	r.until("the metric counts a repair", func() bool {
		return r.metric("calico_node_firewall_drift_repaired_total") > repairs
	})

	// Without events, the timer finds it: since others change their tables all the time, not at each audit.
	r.put(configPath("NftablesRefreshInterval"), "1")
	r.enforced()
	r.deafen()
	// What was heard of before may have been repaired in two goes.
	repairs = r.metric("calico_node_firewall_drift_repaired_total")
	r.run(r.self, "nft", r.tamperings(server, client)["delete a rule"][0])
	r.until("the timer finds it", func() bool { return r.listing() == want })
	r.until("the metric counts it", func() bool {
		return r.metric("calico_node_firewall_drift_repaired_total") > repairs
	})
}

func sortedKeys(m map[string][]string) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// stopped stops the agent in its tracks.
func (r *rig) stopped() {
	r.Helper()
	if err := r.host.Agent().Pause(); err != nil {
		r.Fatal(err)
	}
}

// deafen has the agent hear no more of nftables: its socket is taken out of the
// group, by a descriptor of our own.
func (r *rig) deafen() {
	r.Helper()
	p, err := r.host.Agent().Process()
	if err != nil {
		r.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		r.Fatal(err)
	}
	defer unix.Close(pidfd)
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(p.PID), "fd"))
	if err != nil {
		r.Fatal(err)
	}
	found := 0
	for _, e := range entries {
		n, _ := strconv.Atoi(e.Name())
		fd, err := unix.PidfdGetfd(pidfd, n, 0)
		if errors.Is(err, unix.EBADF) {
			continue // closed meanwhile
		}
		if err != nil {
			r.Fatal(err)
		}
		const group = 7 // NFNLGRP_NFTABLES
		protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
		if domain, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && domain == unix.AF_NETLINK && protocol == unix.NETLINK_NETFILTER {
			if groups, err := unix.GetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LIST_MEMBERSHIPS); err == nil && groups&(1<<(group-1)) != 0 {
				found++
				if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_DROP_MEMBERSHIP, group); err != nil {
					r.Fatal(err)
				}
			}
		}
		unix.Close(fd)
	}
	if found != 1 {
		r.Fatalf("the agent listens to nftables with %d sockets", found)
	}
}
