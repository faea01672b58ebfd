// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the engine says to testdata")

// A golden begins with what host-1 is told and ends with what follows:
//
//	-- etcd --     path = value
//	-- links --    name [up] [no-carrier] [uplink] [mtu N] address..., or: route CIDR [via A] dev D [onlink],
//	               after which: nexthop via A dev D
//	-- learned --  CIDR via A from A [rank N][, via A from A]
//	-- needs --    address of etcd [by routes of ours]
//	-- plan --     the state
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			given, want, ok := strings.Cut(string(data), "-- plan --\n")
			if !ok {
				t.Fatalf("%s has no part `-- plan --`", file)
			}
			e, w := tell1(t, given)
			var st State
			st.Apply(e.compute())
			check(t, w, Settings{}, st)
			checkUsed(t, e, w, st)
			if *update {
				if err := os.WriteFile(file, []byte(given+"-- plan --\n"+st.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, st.String()); diff != "" {
				t.Errorf("-want +got; after a look: go test ./pkg/plan -update\n%s", diff)
			}
		})
	}
}

// tellGolden is tell1 with what the golden of that name gives.
func tellGolden(t *testing.T, name string) (*engine, world) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	given, _, _ := strings.Cut(string(data), "-- plan --\n")
	return tell1(t, given)
}

// tell1 makes the engine of host-1 and tells it what a golden gives.
func tell1(t *testing.T, given string) (*engine, world) {
	t.Helper()
	e := newEngine("host-1", Settings{})
	w := world{self: "host-1", entries: map[string]model.Entry{}, learned: map[netip.Prefix][]Path{}, etcd: map[netip.Addr]bool{}}
	part := ""
	for lines := bufio.NewScanner(strings.NewReader(given)); lines.Scan(); {
		line := lines.Text()
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "-- "):
			part = strings.Trim(line, "- ")
		case part == "etcd":
			entry := parseEntry(t, line, int64(len(w.entries)+1))
			w.put(entry)
			e.Update(entry)
		case part == "links":
			parseLink(t, line, &w.links)
		case part == "learned":
			l := parseLearned(t, line)
			w.learned[l.Prefix] = l.Paths
			e.Learn(l)
		case part == "needs":
			a, how, _ := strings.Cut(line, " ")
			w.etcd[netip.MustParseAddr(a)] = how != ""
		default:
			t.Fatalf("line %q is in no part", line)
		}
	}
	e.SetLinks(w.links)
	e.SetEtcd(w.etcd)
	return e, w
}

func parseEntry(t *testing.T, line string, revision int64) model.Entry {
	t.Helper()
	path, value, ok := strings.Cut(line, " = ")
	key, err := model.ParseKey(path)
	if !ok || errors.Is(err, model.ErrUnknownKey) {
		t.Fatalf("line %q: %v", line, err)
	}
	if err != nil {
		return model.Entry{Path: path, Err: err, Revision: revision, Created: revision}
	}
	entry := model.Entry{Path: path, Key: key, Revision: revision, Created: revision}
	if block, ok := key.(model.BlockKey); ok {
		entry.Value = parseBlock(t, block.CIDR, value)
	} else {
		entry.Value, entry.Err = model.ParseValue(key, []byte(value))
	}
	return entry
}

// parseBlock reads "host ordinal:node[:handle] …": JSON of 64 addresses is not for people.
func parseBlock(t *testing.T, p netip.Prefix, text string) model.Block {
	t.Helper()
	words := strings.Fields(text)
	b := model.Block{CIDR: p, Affinity: strings.TrimPrefix(words[0], "-")}
	taken := map[int]model.Attributes{}
	for _, word := range words[1:] {
		part := strings.Split(word+":", ":")
		n, err := strconv.Atoi(part[0])
		if err != nil {
			t.Fatal(err)
		}
		taken[n] = model.Attributes{HandleID: part[2], Secondary: map[string]string{"node": part[1]}}
	}
	for i := range b.Size() {
		if a, ok := taken[i]; ok {
			b.Allocations = append(b.Allocations, len(b.Attributes))
			b.Attributes = append(b.Attributes, a)
		} else {
			b.Allocations, b.Unallocated = append(b.Allocations, model.Free), append(b.Unallocated, i)
		}
	}
	data, err := model.FormatValue(b)
	if err != nil {
		t.Fatal(err)
	}
	read, err := model.ParseValue(model.BlockKey{CIDR: p}, data)
	if err != nil {
		t.Fatal(err)
	}
	return read.(model.Block)
}

func parseLink(t *testing.T, line string, links *Links) {
	t.Helper()
	words := strings.Fields(line)
	if words[0] == "nexthop" {
		r := HostRoute{Destination: links.Routes[len(links.Routes)-1].Destination, Device: words[4], Next: true}
		r.Gateway = netip.MustParseAddr(words[2])
		links.Routes = append(links.Routes, r)
		return
	}
	if words[0] == "route" {
		r := HostRoute{Destination: netip.MustParsePrefix(words[1])}
		if r.OnLink = words[len(words)-1] == "onlink"; r.OnLink {
			words = words[:len(words)-1]
		}
		r.Device = words[len(words)-1]
		if words[2] == "via" {
			r.Gateway = netip.MustParseAddr(words[3])
		}
		links.Routes = append(links.Routes, r)
		return
	}
	l := Link{Name: words[0], Loopback: words[0] == "lo"}
	for i, word := range words {
		switch {
		case i == 0 || words[i-1] == "mtu":
		case word == "up":
			l.Up = true
		case word == "no-carrier":
			l.NoCarrier = true
		case word == "uplink":
			l.Uplink = true
		case word == "mtu":
			fmt.Sscan(words[i+1], &l.MTU)
		default:
			l.Addrs = append(l.Addrs, netip.MustParsePrefix(word))
		}
	}
	links.Links = append(links.Links, l)
}

func parseLearned(t *testing.T, line string) Learned {
	t.Helper()
	prefix, paths, _ := strings.Cut(line, " ")
	l := Learned{Prefix: netip.MustParsePrefix(prefix)}
	for path := range strings.SplitSeq(paths, ",") {
		words := strings.Fields(path)
		rank := 0
		if len(words) == 6 {
			fmt.Sscan(words[5], &rank)
		} else if len(words) != 4 {
			t.Fatalf("line %q: want CIDR via A from A [rank N]", line)
		}
		l.Paths = append(l.Paths, Path{netip.MustParseAddr(words[1]), netip.MustParseAddr(words[3]), rank})
	}
	return l
}

// TestCarriers follows a carrier that comes and goes, with nothing else.
func TestCarriers(t *testing.T) {
	data, err := os.ReadFile("testdata/carriers.txt")
	if err != nil {
		t.Fatal(err)
	}
	given, _, _ := strings.Cut(string(data), "-- plan --\n")
	e, w := tell1(t, given)
	var st State
	for _, silent := range [][2]bool{{false, false}, {true, false}, {true, true}, {false, true}, {false, false}, {true, true}} {
		w.links = clone(w.links)
		for i := range silent {
			w.links.Links[i].NoCarrier = silent[i]
		}
		e.SetLinks(w.links)
		st.Apply(e.compute())
		check(t, w, Settings{}, st)
		want := 1
		if silent[0] == silent[1] {
			want = 2
		}
		if r := st.Routes[netip.MustParsePrefix("10.65.1.0/26")]; len(r.Hops) != want {
			t.Errorf("without carriers %v: %s", silent, r)
		}
	}
}
