// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

// holdingsOf is all that a host and etcd hold of pods, as text.
type holdingsOf struct {
	etcd   map[string]string // by key; a block says who has its addresses
	kernel []string
	leases []string // of host-local
}

// take reads it, past what is under test.
func take(ctx context.Context, l *lab.Lab, h *lab.Host, leases string) (holdingsOf, error) {
	out := holdingsOf{etcd: make(map[string]string)}
	raw, err := l.RawAt(ctx, model.Root, 0)
	if err != nil {
		return out, err
	}
	state := make(map[string]model.Entry)
	for _, k := range raw.Keys {
		e := model.Entry{Path: k.Key, Revision: k.Modified}
		if e.Key, e.Err = model.ParseKey(k.Key); e.Err == nil {
			e.Value, e.Err = model.ParseValue(e.Key, k.Value)
		}
		state[k.Key] = e
		if text := entryText(e, k.Value); text != "" {
			out.etcd[k.Key] = text
		}
	}
	dropIdle(out.etcd, state)
	if wrong := faults(state, []string{bareNetwork}); len(wrong) > 0 {
		return out, fmt.Errorf("etcd at revision %d:\n  %s", raw.Revision, strings.Join(wrong, "\n  "))
	}
	k, err := h.Namespace().Kernel()
	out.kernel = k.Lines()
	if err != nil {
		return out, err
	}
	if out.leases, err = leased(leases); err != nil {
		return out, err
	}
	return out, nil
}

// entryText is what matters of an entry, "" where nothing does. A block that was
// used differs afterwards in the order in which its addresses are given out.
func entryText(e model.Entry, raw []byte) string {
	switch k := e.Key.(type) {
	case model.StatusKey, model.LastStatusKey:
		return ""
	case model.BlockKey:
		b, _ := e.Value.(model.Block)
		text := "affinity " + b.Affinity
		addr := k.CIDR.Addr()
		for _, a := range b.Allocations {
			if a != model.Free {
				text += fmt.Sprintf(", %s of %s", addr, b.Attributes[a].HandleID)
			}
			addr = addr.Next()
		}
		return text
	}
	return string(raw)
}

// dropIdle drops blocks without addresses, and the affinities to them: a host
// keeps those for its next pod, and gives them back as it likes.
func dropIdle(texts map[string]string, state map[string]model.Entry) {
	idle := make(map[netip.Prefix]bool)
	for path, e := range state {
		if k, ok := e.Key.(model.BlockKey); ok && !strings.Contains(texts[path], " of ") {
			idle[k.CIDR] = true
			delete(texts, path)
		}
	}
	for path, e := range state {
		if k, ok := e.Key.(model.AffinityKey); ok && idle[k.CIDR] {
			delete(texts, path)
		}
	}
}

// leased are the files by which host-local remembers its addresses.
func leased(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err == nil {
			owner, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			out = append(out, e.Name()+" of "+strings.Join(strings.Fields(string(owner)), " "))
		}
	}
	return out, err
}

// more says what is there and was not before, or the other way round.
func (h holdingsOf) more(before holdingsOf) error {
	text := func(h holdingsOf) []string {
		var out []string
		for _, path := range slices.Sorted(maps.Keys(h.etcd)) {
			out = append(out, path+" "+h.etcd[path])
		}
		return slices.Concat(out, h.kernel, h.leases)
	}
	if diff := cmp.Diff(text(before), text(h)); diff != "" {
		return fmt.Errorf("what is there (-before +after):\n%s", diff)
	}
	return nil
}

// locked returns an error where somebody holds a lock of the host's lock file.
func locked(h *lab.Host) error {
	f, err := os.OpenFile(filepath.Join(h.RunDir(), "cni.lock"), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &whole); err != nil {
		return err
	}
	if whole.Type != unix.F_UNLCK {
		return fmt.Errorf("%s: byte %d is locked", f.Name(), whole.Start)
	}
	return nil
}
