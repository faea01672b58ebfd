// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/calico-go/calico/pkg/agent/statefile"
	"github.com/calico-go/calico/pkg/plan"
)

// IDName is a file in the var directory: the host's name, and the identifier by
// which it speaks BGP.
const IDName = "router-id"

// routing are the engine's settings, with the identifier by which BGP speaks.
func (r *Router) routing() plan.Settings {
	s := r.params.Routing()
	s.RouterID = r.routerID
	return s
}

// identify notes the identifier by which BGP is to speak. A neighbour that keeps the routes
// of an agent that restarts must know it again: see docs/decisions.md.
func (r *Router) identify() {
	id := r.state.Speaker.RouterID
	if r.state.Speaker.AS == 0 || id == r.routerID {
		return
	}
	r.routerID = id
	r.noteID()
}

// noteID writes the identifier for the next run, at every audit again. What fails is said once.
func (r *Router) noteID() {
	err := r.network.writeRouterID(r.routerID)
	switch {
	case err != nil && !r.unnoted:
		r.log.Warn("the BGP router id is not on disk: after a restart of the agent it may be another, and neighbours may keep routes that are gone", "err", err)
	case err == nil && r.unnoted:
		r.log.Info("the BGP router id is on disk", "id", r.routerID)
	}
	r.unnoted = err != nil
}

// idFile is where one host of the name keeps its identifier.
type idFile struct{ path, host string }

func newIDFile(dir, host string) idFile {
	return idFile{filepath.Join(dir, IDName), host}
}

// read gives what a former run wrote, invalid = nothing that fits: a copied disk has
// another host's.
func (f idFile) read() (netip.Addr, error) {
	text, err := os.ReadFile(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return netip.Addr{}, nil
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("read the BGP router id: %w", err)
	}
	var host, word string
	if _, err := fmt.Sscan(string(text), &host, &word); err != nil || host != f.host {
		return netip.Addr{}, nil
	}
	id, err := netip.ParseAddr(word)
	if err != nil || !id.Is4() || id.IsUnspecified() {
		return netip.Addr{}, nil
	}
	return id, nil
}

func (f idFile) write(id netip.Addr) error {
	return statefile.Write(f.path, []byte(f.host+" "+id.String()+"\n"))
}
