// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/calico-go/calico/pkg/agent/statefile"
	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/plan"
)

// SpokenName is a file in the var directory: what BGP was told last, for an agent that starts and may go by nothing
// in etcd. No password is in it.
const SpokenName = "bgp-spoken"

// spokenVersion is that of the file's form. Another is for a form that means something else.
const spokenVersion = 1

// spoken is what the file holds, as JSON.
type spoken struct {
	Version        int
	Host, Place    string
	Speaker        plan.Speaker
	Neighbours     []plan.Neighbour
	Advertisements []plan.Advertisement
}

// spokenFile is where one host of the name, in one boot, keeps what it said: after another boot its pods are gone, and its
// blocks may be other hosts'.
type spokenFile struct{ path, host, place string }

// isThere says whether there is a file that is written, of whatever content.
func (f spokenFile) isThere() bool {
	if f.place == "" {
		return true
	}
	_, err := os.Stat(f.path)
	return !errors.Is(err, os.ErrNotExist)
}

// write does nothing where it isn't known which boot this is.
func (f spokenFile) write(d bgp.Desired) error {
	if f.place == "" {
		return nil
	}
	s := spoken{Version: spokenVersion, Host: f.host, Place: f.place, Speaker: d.Speaker}
	for _, a := range slices.SortedFunc(maps.Keys(d.Neighbours), netip.Addr.Compare) {
		s.Neighbours = append(s.Neighbours, d.Neighbours[a])
	}
	byPrefix := func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	}
	for _, p := range slices.SortedFunc(maps.Keys(d.Advertisements), byPrefix) {
		s.Advertisements = append(s.Advertisements, d.Advertisements[p])
	}
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return statefile.Write(f.path, append(text, '\n'))
}

// read gives what an agent of this host said in this boot, by the identifier that the host has; anything else is an error.
func (f spokenFile) read(id netip.Addr) (bgp.Desired, error) {
	if f.place == "" {
		return bgp.Desired{}, errors.New("it isn't known which boot this is")
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		return bgp.Desired{}, err
	}
	var s spoken
	reader := json.NewDecoder(bytes.NewReader(text))
	reader.DisallowUnknownFields()
	err = reader.Decode(&s)
	switch {
	case s.Version != spokenVersion && s.Version != 0:
		return bgp.Desired{}, fmt.Errorf("%s is of version %d, this agent writes %d", f.path, s.Version, spokenVersion)
	case err != nil:
		return bgp.Desired{}, fmt.Errorf("%s: %w", f.path, err)
	case s.Version == 0:
		return bgp.Desired{}, fmt.Errorf("%s has no version", f.path)
	case s.Host != f.host:
		return bgp.Desired{}, fmt.Errorf("%s is of host %q", f.path, s.Host)
	case s.Place != f.place:
		return bgp.Desired{}, fmt.Errorf("%s is of before the host was booted", f.path)
	case s.Speaker.AS != 0 && s.Speaker.RouterID != id:
		return bgp.Desired{}, fmt.Errorf("%s is of router id %s, the host's is %s", f.path, s.Speaker.RouterID, id)
	}
	d := bgp.Desired{Speaker: s.Speaker, Neighbours: map[netip.Addr]plan.Neighbour{}, Advertisements: map[netip.Prefix]plan.Advertisement{}}
	for _, n := range s.Neighbours {
		d.Neighbours[n.Address] = n
	}
	for _, a := range s.Advertisements {
		d.Advertisements[a.Prefix] = a
	}
	return d, nil
}

func newSpokenFile(dir, host, place string) spokenFile {
	return spokenFile{filepath.Join(dir, SpokenName), host, place}
}
