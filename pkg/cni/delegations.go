// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/model"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"
)

// delegations remember for whom another plugin was asked for addresses, from
// before the question until after they were given back. A call may be killed
// before it has written an endpoint, or after that is deleted: then nothing else
// says that the other plugin keeps addresses, and most have no GC of their own.
//
// Each is a symbolic link: it is made in one step, and where it points says all.
// Beside it is the configuration that the plugin is asked with, for when
// ipam.type is another by the time of the DEL; and a file with what the plugin answered, from when it has answered
// until just before it is told to take it back: an endpoint has the addresses,
// not the routes and the resolver that came with them.
type delegations struct{ dir string }

// answer is what a file has. Half of one, by a call that was killed or a host
// that crashed, does not parse, and counts as none.
type answer struct {
	Plugin string           `json:"plugin"`
	Result *types100.Result `json:"result"`
}

// delegation is one container interface.
type delegation struct {
	network, cid, ifName, hostIf string
	// key is the endpoint's, which a DEL may know by other names; zero in older notes.
	key model.WorkloadEndpointKey
}

func newDelegations(varDir string) delegations {
	return delegations{filepath.Join(varDir, "delegated")}
}

func delegationOf(id identity) delegation {
	return delegation{network: id.network, cid: id.cid, ifName: id.ifName, hostIf: id.hostIf, key: id.key}
}

// path is of one length however long the names are, which have no spaces. Other names than
// those with dots may make the same handle; notes were once found by that alone.
func (d delegations) path(x delegation) string {
	path := func(name string) string {
		sum := sha1.Sum([]byte(name))
		return filepath.Join(d.dir, hex.EncodeToString(sum[:]))
	}
	byHandle := path(handleID(x.network, x.cid, x.ifName))
	if !strings.Contains(x.cid+x.ifName, ".") {
		return byHandle
	}
	names := strings.Join([]string{x.network, x.cid, x.ifName}, " ")
	if text, err := os.Readlink(byHandle); err == nil && strings.HasPrefix(text, names+" ") {
		return byHandle
	}
	return path(names)
}

// note remembers one; former says that it was known before.
func (d delegations) note(x delegation) (former bool, err error) {
	text := strings.Join([]string{x.network, x.cid, x.ifName, x.hostIf, x.key.Path()}, " ")
	err = os.Symlink(text, d.path(x))
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(d.dir, 0o755); err == nil {
			err = os.Symlink(text, d.path(x))
		}
	}
	if errors.Is(err, os.ErrExist) {
		return true, nil
	}
	return false, err
}

// read is what the note of a container interface says, if there is one.
func (d delegations) read(x delegation) (delegation, bool) {
	text, err := os.Readlink(d.path(x))
	if err != nil {
		return delegation{}, false
	}
	got, ok := parseNote(text)
	return got, ok && got.network == x.network && got.cid == x.cid && got.ifName == x.ifName
}

func parseNote(text string) (x delegation, ok bool) {
	w := strings.Split(text, " ")
	if len(w) != 4 && len(w) != 5 {
		return x, false
	}
	x = delegation{network: w[0], cid: w[1], ifName: w[2], hostIf: w[3]}
	if len(w) == 5 {
		key, err := model.ParseKey(w[4])
		if err != nil {
			return x, false
		}
		x.key, ok = key.(model.WorkloadEndpointKey)
		return x, ok
	}
	return x, true
}

// forget takes a note away, and what was asked and answered.
func (d delegations) forget(x delegation) error {
	if err := errors.Join(d.drop(x), remove(d.confPath(x))); err != nil {
		return err
	}
	return remove(d.path(x))
}

func (d delegations) confPath(x delegation) string { return d.path(x) + ".conf" }

// asked writes down the configuration that a plugin is about to be asked with,
// which may have secrets.
func (d delegations) asked(x delegation, conf []byte) error {
	return os.WriteFile(d.confPath(x), conf, 0o600)
}

// askedWith reads it. Half of one was written by a call that did not ask.
func (d delegations) askedWith(x delegation) (*netconf.Config, bool) {
	data, err := os.ReadFile(d.confPath(x))
	if err != nil {
		return nil, false
	}
	conf, err := netconf.Parse(data)
	return conf, err == nil
}

func (d delegations) answerPath(x delegation) string { return d.path(x) + ".json" }

// keep writes down what the plugin has answered.
func (d delegations) keep(x delegation, plugin string, result *types100.Result) error {
	data, err := json.Marshal(answer{plugin, result})
	if err != nil {
		return err
	}
	return os.WriteFile(d.answerPath(x), data, 0o600)
}

// kept reads what the plugin has answered, if it is known.
func (d delegations) kept(x delegation, plugin string) (*types100.Result, bool) {
	data, err := os.ReadFile(d.answerPath(x))
	if err != nil {
		return nil, false
	}
	var a answer
	if err := json.Unmarshal(data, &a); err != nil || a.Plugin != plugin || a.Result == nil {
		return nil, false
	}
	return a.Result, true
}

// drop forgets what was answered, and keeps the note.
func (d delegations) drop(x delegation) error { return remove(d.answerPath(x)) }

// remove succeeds where there is nothing, on a file system that is read-only too.
func remove(path string) error {
	err := os.Remove(path)
	if _, gone := os.Lstat(path); err == nil || errors.Is(gone, os.ErrNotExist) || errors.Is(gone, unix.ENOTDIR) {
		return nil
	}
	return err
}

// of lists those of one network.
func (d delegations) of(network string) ([]delegation, error) {
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var out []delegation
	for _, e := range entries {
		text, err := os.Readlink(filepath.Join(d.dir, e.Name()))
		if err != nil {
			continue // forgotten meanwhile, or nothing of ours
		}
		if x, ok := parseNote(text); ok && x.network == network {
			out = append(out, x)
		}
	}
	return out, err
}
