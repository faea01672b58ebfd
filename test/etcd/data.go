// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"net/netip"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// Put writes a key.
func (s *Server) Put(key model.Key, value any) (revision int64) {
	s.Helper()
	return s.commit(model.Change{Puts: []model.Put{{Key: key, Value: value}}})
}

// Remove deletes keys.
func (s *Server) Remove(keys ...model.Key) {
	s.Helper()
	s.commit(model.Change{Deletes: keys})
}

// commit makes a change, again if a busy machine gave etcd no time to answer.
func (s *Server) commit(change model.Change) (revision int64) {
	s.Helper()
	s.Until("etcd answers", func() bool {
		var err error
		revision, err = s.Store.Commit(context.Background(), change)
		if err != nil && !errors.Is(err, store.ErrUnknownOutcome) {
			s.Fatal(err)
		}
		return err == nil
	})
	return revision
}

// Get returns the value of a key, nil if it doesn't exist.
func (s *Server) Get(key model.Key) any {
	s.Helper()
	snapshot, err := s.Store.Read(context.Background(), model.KeyRange(key))
	if err != nil {
		s.Fatal(err)
	}
	entry, _ := snapshot.Get(key)
	return entry.Value
}

// Field returns a BGP field of a host, "" if it doesn't exist.
func (s *Server) Field(host string, field model.BGPHostField) string {
	s.Helper()
	text, _ := s.Get(model.BGPHostKey{Host: host, Field: field}).(model.Text)
	return string(text)
}

// Setting returns a setting of a host, "" if it doesn't exist.
func (s *Server) Setting(host, name string) string {
	s.Helper()
	text, _ := s.Get(model.HostConfigKey{Host: host, Name: name}).(model.Text)
	return string(text)
}

// Held returns the addresses of a handle, each of which must name a node.
func (s *Server) Held(handle string) []netip.Addr {
	s.Helper()
	snapshot, err := s.Store.Read(context.Background(), model.PrefixRange(model.BlockPrefix(false)), model.PrefixRange(model.BlockPrefix(true)))
	if err != nil {
		s.Fatal(err)
	}
	var all []netip.Addr
	for _, e := range snapshot.Entries() {
		b := e.Value.(model.Block)
		a := b.CIDR.Addr()
		for _, n := range b.Allocations {
			if n >= 0 && b.Attributes[n].HandleID == handle {
				all = append(all, a)
				if b.Attributes[n].Secondary["node"] == "" {
					s.Errorf("%s is of no node: %v", a, b.Attributes[n])
				}
			}
			a = a.Next()
		}
	}
	return all
}

// Check checks the content against the invariants of the data model.
func (s *Server) Check() {
	s.Helper()
	snapshot, err := s.Store.Read(context.Background(), model.PrefixRange("/calico/"))
	if err != nil {
		s.Fatal(err)
	}
	for _, v := range invariants.Check(snapshot.Entries()) {
		s.Errorf("revision %d: %s", snapshot.Revision, v)
	}
}

// LeaseOf returns the lease of a key, 0 for none.
func (s *Server) LeaseOf(key model.Key) (id int64) {
	s.Helper()
	s.Client(func(ctx context.Context, c *clientv3.Client) error {
		got, err := c.Get(ctx, key.Path())
		if err == nil && len(got.Kvs) > 0 {
			id = got.Kvs[0].Lease
		}
		return err
	})
	return id
}

// LoseName makes another host take a name, with an address, while the host that has the name can't reach etcd and its
// lease ends.
func (s *Server) LoseName(name, addr string) {
	s.Helper()
	status := model.StatusKey{Host: name}
	lease := s.LeaseOf(status)
	s.elsewhere(func(client *store.Client) {
		s.Helper()
		if err := client.Revoke(context.Background(), lease); err != nil {
			s.Fatal(err)
		}
		change := model.Change{Puts: []model.Put{
			{Key: status, Value: model.Status{Time: time.Now()}},
			{Key: model.BGPHostKey{Host: name, Field: model.BGPHostIPv4}, Value: model.Text(addr)},
		}}
		if _, err := client.Commit(context.Background(), change); err != nil {
			s.Fatal(err)
		}
	})
}
