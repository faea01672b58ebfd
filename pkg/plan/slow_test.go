// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// world is all that an engine was told, in the plainest form.
type world struct {
	self     string
	entries  map[string]model.Entry // that exist, by path
	links    Links
	learned  map[netip.Prefix][]Path
	retained map[netip.Prefix]Route
	etcd     map[netip.Addr]bool
}

// slow works a State out anew from everything, by looking through everything. It
// leaves out Problems' reasons: whose there are is what counts.
type slow struct {
	world
	objects map[model.Key]model.Entry
	names   []string
	st      State
}

func (w world) compute(settings Settings) State {
	s := &slow{world: w, objects: map[model.Key]model.Entry{}}
	s.st = State{
		Routes: map[netip.Prefix]Route{}, Remotes: map[RemoteID]Remote{}, Hosts: map[netip.Addr]string{},
		Neighbours: map[netip.Addr]Neighbour{}, Advertisements: map[netip.Prefix]Advertisement{}, Problems: map[ProblemID]Problem{},
	}
	for _, path := range slices.Sorted(maps.Keys(w.entries)) {
		entry := w.entries[path]
		if entry.Err != nil {
			switch entry.Key.(type) {
			case model.HostMetadataKey, model.StatusKey, model.LastStatusKey, model.WorkloadStatusKey, model.GlobalConfigKey:
			default:
				s.problem(BadValue, path)
			}
		}
		if entry.Key == nil {
			continue
		}
		was, twice := s.objects[entry.Key]
		if !twice || path == entry.Key.Path() || was.Path != entry.Key.Path() && path < was.Path {
			s.objects[entry.Key] = entry
		}
	}
	seen := map[string]bool{w.self: true}
	for key := range s.objects {
		switch k := key.(type) {
		case model.HostMetadataKey:
			seen[k.Host] = true
		case model.HostBirdIPKey:
			seen[k.Host] = true
		}
	}
	s.names = slices.Sorted(maps.Keys(seen))
	settings = settings.withDefaults()
	s.config(settings)
	for _, name := range s.names {
		for f := range 2 {
			s.host(name, f)
		}
	}
	s.neighbours(settings)
	s.routes()
	s.awaited()
	return s.st
}

func (s *slow) problem(kind ProblemKind, subject string) {
	id := ProblemID{kind, subject}
	s.st.Problems[id] = Problem{ProblemID: id}
}

// text is a setting of a host; ok is false where it can't be read.
func (s *slow) text(key model.Key) (text string, ok bool) {
	entry, there := s.objects[key]
	if !there {
		return "", true
	}
	t, ok := entry.Value.(model.Text)
	return string(t), ok
}

// claimed is the address that a host says it has, and the entry that says so.
func (s *slow) claimed(name string, f int) (netip.Addr, model.Entry) {
	if !slices.Contains(s.names, name) {
		return netip.Addr{}, model.Entry{}
	}
	var key model.Key = model.BGPHostKey{Host: name, Field: addrField(f)}
	text, ok := s.text(key)
	if f == 0 && ok && text == "" {
		key = model.HostBirdIPKey{Host: name}
		text, _ = s.text(key)
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() {
		return netip.Addr{}, model.Entry{}
	}
	return a, s.objects[key]
}

func (s *slow) alive(name string) bool {
	_, status := s.objects[model.StatusKey{Host: name}]
	_, last := s.objects[model.LastStatusKey{Host: name}]
	return name == s.self || status || !last
}

// at is the host to which an address belongs.
func (s *slow) at(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	var all []string
	f := familyOf(a)
	for _, name := range s.names {
		if c, _ := s.claimed(name, f); c == a {
			all = append(all, name)
		}
	}
	if len(all) == 0 || slices.Contains(all, s.self) {
		if len(all) > 0 {
			return s.self
		}
		return ""
	}
	if live := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return !s.alive(n) }); len(live) > 0 {
		all = live
	}
	return slices.MinFunc(all, func(x, y string) int {
		_, ex := s.claimed(x, f)
		_, ey := s.claimed(y, f)
		return cmp.Or(cmp.Compare(ex.Created, ey.Created), cmp.Compare(x, y))
	})
}

// mine is a host's address, if no other comes first.
func (s *slow) mine(name string, f int) netip.Addr {
	if a, _ := s.claimed(name, f); s.at(a) == name {
		return a
	}
	return netip.Addr{}
}

// as is a host's number, that of all, or the default: the first that can be read.
func (s *slow) as(name string) model.ASNumber {
	if text, ok := s.text(model.BGPHostKey{Host: name, Field: model.BGPHostAS}); ok && slices.Contains(s.names, name) {
		if n, err := model.ParseASNumber(text); err == nil {
			return n
		}
	}
	if n, _ := s.objects[model.BGPGlobalASKey{}].Value.(model.ASNumber); n != 0 {
		return n
	}
	return 64512
}

func (s *slow) cluster(name string) netip.Addr {
	text, _ := s.text(model.BGPHostKey{Host: name, Field: model.BGPHostReflector})
	a, _ := netip.ParseAddr(text)
	if !slices.Contains(s.names, name) {
		return netip.Addr{}
	}
	return a
}

func (s *slow) uplinks() []Link {
	var up []Link
	for _, l := range s.links.Links {
		has := l.Uplink
		for _, p := range l.Addrs {
			has = has || p.Addr() == s.mine(s.self, 0) || p.Addr() == s.mine(s.self, 1)
		}
		if has {
			up = append(up, l)
		}
	}
	return up
}

func (s *slow) onLink(a netip.Addr) (string, bool) {
	for _, l := range s.links.Links {
		for _, p := range l.Addrs {
			if p.Addr() == a {
				return l.Name, true
			}
		}
	}
	return "", false
}

// pending reports whether the link that has an address doesn't know yet that no other has it.
func (s *slow) pending(a netip.Addr) bool {
	for _, l := range s.links.Links {
		for _, p := range l.Addrs {
			if p.Addr() == a {
				return slices.Contains(l.Pending, a)
			}
		}
	}
	return false
}
