// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/daemon/statefile"
	"github.com/calico-go/calico/pkg/plan"
)

// BGPStateName is the file in the var directory with the host's BGP identifier and BGP's last state, for an agent that starts while etcd
// can't be read. It has no passwords.
const BGPStateName = "bgp-state"

// bgpStateVersion is the version of the file's format. It changes with the format's meaning.
const bgpStateVersion = 1

// bgpState is the file's content, as JSON.
type bgpState struct {
	Version        int
	Host           string
	RouterID       netip.Addr
	Boot           string // the boot in which the rest was valid, "" = unknown
	Speaker        plan.Speaker
	Neighbours     map[netip.Addr]plan.Neighbour
	Advertisements map[netip.Prefix]plan.Advertisement
}

// stateFile keeps the bgpState of one host in one boot: after a reboot its pods are gone, and its blocks may be other hosts'.
type stateFile struct{ path, host, boot string }

func newStateFile(dir, host, boot string) stateFile {
	return stateFile{filepath.Join(dir, BGPStateName), host, boot}
}

func (f stateFile) write(id netip.Addr, d bgp.Desired) error {
	s := bgpState{Version: bgpStateVersion, Host: f.host, RouterID: id}
	if f.boot != "" {
		s.Boot, s.Speaker, s.Neighbours, s.Advertisements = f.boot, d.Speaker, d.Neighbours, d.Advertisements
	}
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return statefile.Write(f.path, append(text, '\n'))
}

// read returns the identifier that a former agent of this host had, invalid = none, and BGP's last state in this boot. The error says why
// that state can't be used.
func (f stateFile) read() (netip.Addr, bgp.Desired, error) {
	var s bgpState
	text, err := os.ReadFile(f.path)
	if err != nil {
		return netip.Addr{}, bgp.Desired{}, err
	}
	reader := json.NewDecoder(bytes.NewReader(text))
	reader.DisallowUnknownFields()
	if err = reader.Decode(&s); err == nil && !json.Valid(text) {
		err = errors.New("there is more behind the state")
	}
	switch {
	case s.Version != bgpStateVersion && s.Version != 0:
		err = fmt.Errorf("%s is of version %d, this agent writes %d", f.path, s.Version, bgpStateVersion)
	case err != nil:
		err = fmt.Errorf("%s: %w", f.path, err)
	case s.Version == 0:
		err = fmt.Errorf("%s has no version", f.path)
	case s.Host != f.host: // a copied disk
		err = fmt.Errorf("%s is of host %q", f.path, s.Host)
	case s.RouterID.IsValid() && !s.RouterID.Is4():
		err = fmt.Errorf("%s: router id %s", f.path, s.RouterID)
	}
	if err != nil {
		return netip.Addr{}, bgp.Desired{}, err
	}
	switch {
	case f.boot == "":
		err = errors.New("it isn't known which boot this is")
	case s.Boot != f.boot:
		err = fmt.Errorf("%s is of before the host was booted", f.path)
	default:
		return s.RouterID, bgp.Desired{Speaker: s.Speaker, Neighbours: s.Neighbours, Advertisements: s.Advertisements}, nil
	}
	return s.RouterID, bgp.Desired{}, err
}
