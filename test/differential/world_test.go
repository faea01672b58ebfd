// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// item is a key as etcd holds it.
type item struct {
	Path    string
	Data    string
	Created int64
}

// entry is the item as a store reads it.
func (i item) entry() model.Entry {
	e := model.Entry{Path: i.Path, Revision: i.Created, Created: i.Created}
	if e.Key, e.Err = model.ParseKey(i.Path); e.Err == nil {
		e.Value, e.Err = model.ParseValue(e.Key, []byte(i.Data))
	}
	return e
}

// world is all that decides the fate of packets.
type world struct {
	Settings policy.Settings
	Tunnels  policy.Tunnels
	Items    map[string]item // by path
}

func (w world) clone() world {
	return world{cloneSettings(w.Settings), w.Tunnels, maps.Clone(w.Items)}
}

func cloneSettings(s policy.Settings) policy.Settings {
	s.Prefixes = slices.Clone(s.Prefixes)
	s.FailsafeInbound, s.FailsafeOutbound = slices.Clone(s.FailsafeInbound), slices.Clone(s.FailsafeOutbound)
	return s
}

// node is what an agent is for policy: an engine and the firewall that it feeds.
type node struct {
	now      world // what it was told last
	engine   *policy.Engine
	state    policy.State
	firewall *nft.Firewall
	links    map[string]int // their indexes, as the firewall was told
}

// newNode makes a node that knows of nothing, in the current namespace.
func newNode() (*node, error) {
	firewall, err := nft.Open(nft.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return &node{now: world{Items: map[string]item{}}, engine: policy.NewEngine(host), firewall: firewall}, nil
}

// become makes the node's firewall that of another world, by telling it what changed.
func (n *node) become(w world) error {
	n.engine.SetInterfaces(interfaces(w.Settings))
	if !slices.Equal(w.Settings.Prefixes, n.now.Settings.Prefixes) {
		n.engine.SetPrefixes(w.Settings.Prefixes)
	}
	for path := range n.now.Items {
		if _, stays := w.Items[path]; !stays {
			n.engine.Update(model.Entry{Path: path})
		}
	}
	for path, i := range w.Items {
		if n.now.Items[path] != i {
			n.engine.Update(i.entry())
		}
	}
	n.engine.CloseMetrics(len(w.Settings.MetricsPorts) > 0)
	n.now = w.clone()
	changes := n.engine.Flush()
	if err := n.state.Apply(changes); err != nil {
		return fmt.Errorf("apply changes to the state: %w", err)
	}
	n.state.Tunnels = w.Tunnels
	n.firewall.Configure(cloneSettings(w.Settings))
	n.firewall.Tunnels(w.Tunnels)
	n.firewall.Update(changes)
	if err := n.tellLinks(); err != nil {
		return err
	}
	return apply(n.firewall)
}

// tellLinks tells the firewall of the links that there are.
func (n *node) tellLinks() error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	n.links = map[string]int{}
	for _, l := range links {
		n.links[l.Name] = l.Index
	}
	n.firewall.Links(n.links)
	return nil
}

// apply applies all, in as many turns as it takes.
func apply(firewall *nft.Firewall) error {
	report, err := firewall.Apply(context.Background())
	for err == nil && report.More {
		report, err = firewall.Apply(context.Background())
	}
	var errs []error
	for path, err := range report.Programmed {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
	}
	return errors.Join(append(errs, err)...)
}
