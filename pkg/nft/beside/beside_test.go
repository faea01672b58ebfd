// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/test/netns"
)

func nft(t *testing.T, command string) string {
	t.Helper()
	out, err := exec.Command("nft", command).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v\n%s", command, err, out)
	}
	return string(out)
}

var counted = regexp.MustCompile(` packets \d+ bytes \d+`)

// rules returns the rules of a family's FORWARD, without counters.
func rules(t *testing.T, family string) (out []string) {
	t.Helper()
	text := counted.ReplaceAllString(nft(t, "list chain "+family+" filter FORWARD"), "")
	for line := range strings.Lines(text) {
		if r, ok := strings.CutPrefix(line, "\t\t"); ok && !strings.HasPrefix(r, "type ") {
			out = append(out, strings.ReplaceAll(strings.TrimSpace(r), ` comment "`+Comment+`"`, " # ours"))
		}
	}
	return out
}

const (
	from = `iifname "cali*" counter accept # ours`
	to   = `oifname "cali*" counter accept # ours`
)

// TestForward: our accepts are in FORWARD if it would drop all of workloads' packets, before what drops them, and nowhere else.
func TestForward(t *testing.T) {
	cali := []string{"cali"}
	base := func(policy string) string {
		return "flush ruleset; add table ip filter; add chain ip filter FORWARD { type filter hook forward priority filter; policy " + policy +
			"; }; add chain ip filter other; add rule ip filter FORWARD ct state invalid drop; "
	}
	const invalid = "ct state invalid drop"
	for _, c := range []struct {
		name, ruleset string
		desired       Desired
		again         string // is done then
		want          []string
	}{
		{"policy accept", base("accept"), Desired{cali, Insert}, "", []string{invalid}},
		{"policy drop", base("drop"), Desired{cali, Insert}, "", []string{from, to, invalid}},
		{"several prefixes", base("drop"), Desired{[]string{"cali", "tap"}, Insert}, "", []string{from, to,
			strings.ReplaceAll(from, "cali*", "tap*"), strings.ReplaceAll(to, "cali*", "tap*"), invalid}},
		{"at the end", base("drop"), Desired{cali, Append}, "", []string{invalid, from, to}},
		{"off", base("drop"), Desired{cali, Off}, "", []string{invalid}},
		{"zero value", base("drop"), Desired{}, "", []string{invalid}},
		{"a jump that rejects", base("accept") + "add rule ip filter other oifname != \"eth0\" counter reject; add rule ip filter FORWARD jump other", Desired{cali, Insert}, "",
			[]string{from, to, invalid, "jump other"}},
		{"somebody else accepts all", base("drop") + "add rule ip filter FORWARD accept", Desired{cali, Insert}, "", []string{invalid, "accept"}},
		{"removed", base("drop"), Desired{cali, Insert}, "flush chain ip filter FORWARD", []string{from, to}},
		{"not needed any more", base("drop"), Desired{cali, Insert}, "add chain ip filter FORWARD { policy accept; }", []string{invalid}},
		{"what drops comes before", base("drop"), Desired{cali, Insert}, "insert rule ip filter FORWARD drop", []string{from, to, "drop", invalid}},
		{"another comes before", base("drop"), Desired{cali, Insert}, "insert rule ip filter FORWARD counter", []string{"counter", from, to, invalid}},
		{"at the end, after what drops", base("drop"), Desired{cali, Append}, "insert rule ip filter FORWARD drop", []string{"drop", invalid, from, to}},
		{"no table", "flush ruleset; add table ip filter; add chain ip filter FORWARD", Desired{cali, Insert}, "", nil},
	} {
		netns.Host(t, func() {
			nft(t, c.ruleset)
			f, err := Open()
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			apply := func() (changes []Change) {
				if changes, err = f.Apply(c.desired); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				return changes
			}
			apply()
			if c.again != "" {
				nft(t, c.again)
				apply()
			}
			if diff := cmp.Diff(c.want, rules(t, "ip")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.name, diff)
			}
			before, _ := f.Generation()
			if changes := apply(); changes != nil {
				t.Errorf("%s, again: changed %v", c.name, changes)
			}
			if after, err := f.Generation(); err != nil || after != before {
				t.Errorf("%s, again: generation %d to %d, %v: want the same", c.name, before, after, err)
			}
			if _, err := f.Apply(Desired{Mode: Off}); err != nil {
				t.Error(err)
			}
			if listed := nft(t, "list ruleset"); strings.Contains(listed, Comment) {
				t.Errorf("%s, taken away:\n%s", c.name, listed)
			}
		})
	}
}

// TestRestored: iptables-restore turns the comment into a match, by which the rules are recognised as ours.
func TestRestored(t *testing.T) {
	netns.Host(t, func() {
		iptables(t, "iptables-nft -P FORWARD DROP")
		f, err := Open()
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		desired := Desired{[]string{"cali"}, Insert}
		for _, mode := range []Mode{Insert, Off} {
			if _, err := f.Apply(desired); err != nil {
				t.Error(err)
			}
			iptables(t, "iptables-nft-save | iptables-nft-restore")
			if _, err := f.Apply(Desired{desired.Prefixes, mode}); err != nil {
				t.Error(err)
			}
			want := map[Mode][]string{Insert: {from, to}}[mode]
			if diff := cmp.Diff(want, rules(t, "ip")); diff != "" {
				t.Errorf("restored, then %s (-want +got):\n%s", mode, diff)
			}
		}
	})
}

// iptables runs a line of shell with a lock of its own.
func iptables(t *testing.T, line string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+t.TempDir()+"/lock")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// TestFamilies: each family has a chain of its own, or none; a change of the mode moves the rules.
func TestFamilies(t *testing.T) {
	netns.Host(t, func() {
		f, err := Open()
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		d := Desired{Prefixes: []string{"cali"}, Mode: Insert}
		if changes, err := f.Apply(d); err != nil || changes != nil {
			t.Errorf("without tables: %v, %v", changes, err)
		}
		nft(t, "add table ip6 filter; add chain ip6 filter FORWARD { type filter hook forward priority 0; policy drop; }; add rule ip6 filter FORWARD counter")
		changes, err := f.Apply(d)
		if diff := cmp.Diff([]Change{{Chain: "ip6 filter FORWARD", Added: 2}}, changes); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		d.Mode = Append
		if _, err := f.Apply(d); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"counter", from, to}, rules(t, "ip6")); diff != "" {
			t.Errorf("appended (-want +got):\n%s", diff)
		}
	})
}
