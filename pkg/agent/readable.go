// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// readable holds, by path, the last readable values of the keys that say how hosts reach each other and what policy selects. Otherwise one
// slip of an editor in a pool would remove its tunnel from every host, and one in a policy would open what it closes.
type readable map[string]any

// fill gives unreadable entries their last readable value, and says so in their errors. It has none for a key that is new, or was already
// unreadable when the agent started.
func (r *readable) fill(u model.Update) {
	was := *r
	if u.Resync || was == nil {
		*r = readable{}
	}
	for i := range u.Entries {
		e := &u.Entries[i]
		until, kept := untilCorrected(e.Key)
		if !kept {
			continue
		}
		value := e.Value
		var policy *model.InvalidPolicyError
		var host *model.InvalidHostEndpointError
		switch {
		case errors.As(e.Err, &policy):
			value, until = model.Policy{Selector: policy.Selector}, "" // its selector is readable: all hosts agree on it
		case errors.As(e.Err, &host):
			value = host.On
			if old, ok := was[e.Path].(model.HostEndpoint); ok && host.Partly {
				value = alsoOn(old, host.On)
			}
		case e.Err != nil:
			value = was[e.Path]
		}
		if !e.Exists() || value == nil {
			delete(*r, e.Path)
			if _, ok := e.Key.(model.PolicyKey); ok && e.Err != nil {
				e.Err = fmt.Errorf("%w; until it is corrected, it has no effect, as it isn't known what it is for", e.Err)
			}
			continue
		}
		(*r)[e.Path] = value
		if e.Err != nil {
			e.Value = value
		}
		if e.Err != nil && until != "" {
			e.Err = fmt.Errorf("%w; until it is corrected, %s", e.Err, until)
		}
	}
}

// alsoOn returns a host endpoint with the addresses of both: the unreadable address may be the one it had.
func alsoOn(a, b model.HostEndpoint) model.HostEndpoint {
	both := func(a, b []netip.Addr) []netip.Addr {
		all := slices.Concat(a, b)
		slices.SortFunc(all, netip.Addr.Compare)
		return slices.Compact(all)
	}
	return model.HostEndpoint{Name: a.Name, ExpectedIPv4Addrs: both(a.ExpectedIPv4Addrs, b.ExpectedIPv4Addrs), ExpectedIPv6Addrs: both(a.ExpectedIPv6Addrs, b.ExpectedIPv6Addrs)}
}

// untilCorrected says what effect an unreadable key has; kept is false if its former value is not used.
func untilCorrected(key model.Key) (until string, kept bool) {
	switch key.(type) {
	case model.PoolKey, model.NetworkSetKey, model.HostMetadataKey, model.HostBirdIPKey, model.BGPHostKey, model.BGPGlobalASKey, model.BGPMeshKey, model.BGPPeerKey, model.BGPFilterKey:
		return "what it held before counts", true
	case model.HostEndpointKey:
		return "", true // policy says it: it knows where the endpoint is
	case model.PolicyKey:
		return "it denies those that it picked before", true
	case model.ProfileTagsKey, model.ProfileLabelsKey:
		return "the profile denies, and selectors go by what it held before", true
	}
	return "", false
}
