// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/probe"
)

const probePort = 7000

// probed is what packets felt of a change.
type probed struct {
	name          string
	written, felt []time.Duration
}

// probe lets policy allow and deny what one pod sends to another.
func (p *policyHost) probe(ctx context.Context, count int) ([]probed, error) {
	var pods [2]*lab.Pod
	for i, name := range []string{"sender", "receiver"} {
		pod, err := p.host.AddPod(ctx, name, lab.PodConfig{})
		if err != nil {
			return nil, err
		}
		pods[i] = pod
	}
	to := netip.AddrPortFrom(pods[1].Addrs()[0], probePort)
	path, err := probe.Open(pods[0], pods[1], to)
	if err != nil {
		return nil, err
	}
	defer func() { _ = path.Close() }() // nothing is written to it
	out := []probed{{name: "a packet that policy comes to allow"}, {name: "a packet that policy comes to deny"}}
	deny, allow := probePolicy(probePort+1), probePolicy(probePort)
	// The first change has all packets denied.
	revision, err := p.put(ctx, deny)
	if err == nil {
		err = p.enforced(ctx, 0, revision)
	}
	if err != nil {
		return nil, err
	}
	for i := range 2 * count {
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
		comes := &out[i%2]
		written, felt, err := p.probeOnce(ctx, path, []model.Entry{allow, deny}[i%2], i%2 == 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", comes.name, err)
		}
		comes.written, comes.felt = append(comes.written, written), append(comes.felt, felt)
	}
	return out, nil
}

// probePolicy is for the two pods, and allows one port.
func probePolicy(port uint16) model.Entry {
	order := 1.0
	return model.Entry{
		Key: model.PolicyKey{Tier: "default", Policy: "probe"},
		Value: model.Policy{
			Selector: fmt.Sprintf("has(%s)", lab.Network), Order: &order, // the tag of the network's own profile
			Inbound:  []model.Rule{{Action: model.ActionAllow, Match: model.Match{Protocol: model.ProtocolUDP, DstPorts: []model.Port{{Min: port, Max: port}}}}},
			Outbound: []model.Rule{{Action: model.ActionAllow}},
		},
	}
}

// probeOnce makes one change while packets flow. Those sent after the gate's answer must all feel it.
func (p *policyHost) probeOnce(ctx context.Context, path *probe.Path, change model.Entry, allow bool) (written, felt time.Duration, err error) {
	var begin, answered time.Time
	effect, err := path.Change(ctx, allow, func() error {
		begin = time.Now()
		revision, err := p.put(ctx, change)
		written = time.Since(begin)
		if err == nil {
			err = p.enforced(ctx, 0, revision)
		}
		answered = time.Now()
		return err
	})
	if err == nil && effect.Before.After(answered) {
		err = fmt.Errorf("a packet sent %v after the gate's answer did not feel the change", effect.Before.Sub(answered))
	}
	return written, effect.Since.Sub(begin), err
}
