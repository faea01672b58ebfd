// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"

	"github.com/calico-go/calico/pkg/model"
)

// pageSize is how many entries one round trip lists.
const pageSize = 1000

// list reads everything below a prefix, page by page.
func (s *session) list(ctx context.Context, prefix string, keysOnly bool) ([]model.Entry, error) {
	r := model.Range{Prefix: prefix, Limit: pageSize, KeysOnly: keysOnly}
	var all []model.Entry
	for {
		snapshot, err := s.client.Read(ctx, r)
		if err != nil {
			return nil, err
		}
		page := snapshot.Entries()
		all = append(all, page...)
		if len(page) < pageSize {
			return all, nil
		}
		r.From = page[len(page)-1].Path + "\x00"
	}
}

// endpointsHere are the workload endpoints of this host, of every orchestrator.
func (s *session) endpointsHere(ctx context.Context) ([]model.Entry, error) {
	return s.list(ctx, model.WorkloadEndpointPrefix(s.node), false)
}

// ownerOf finds an endpoint of this host that lives on the interface, and is
// not the one named. It reads all of the host's endpoints, and is only asked
// where a link is in the way.
func (s *session) ownerOf(ctx context.Context, hostIf string, except model.WorkloadEndpointKey) (path string, found bool, err error) {
	entries, err := s.endpointsHere(ctx)
	if err != nil {
		return "", false, err
	}
	for _, e := range entries {
		if ep, ok := e.Value.(model.WorkloadEndpoint); ok && ep.Name == hostIf && e.Key != except {
			return e.Path, true, nil
		}
	}
	return "", false, nil
}
