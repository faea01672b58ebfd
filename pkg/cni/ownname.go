// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
)

// checkName refuses to take away what etcd has under this node's name where that may be
// another host's: by a copied disk, a slip in the network configuration, or one host name
// for two. The agent of this host knows. Where it doesn't say, the node's address in etcd
// tells; a node that etcd has no address of is this one.
func (s *session) checkName(v *view) error {
	if s.named {
		return nil
	}
	says := s.agent()
	rejected, refused := errors.AsType[*gate.RejectedError](says)
	switch {
	case says == nil, refused && rejected.Name == gate.NameOwn:
		return nil
	case refused && !rejected.Retry:
		return failf(CodeRejected, correctNodename, "node %s isn't this one: %w", s.node, says)
	case refused && rejected.Name == gate.NameInDoubt:
		return failf(CodeTryAgain, "see calico-node's log and /debug/invalid on this host; then try again", "whether node %s is this one isn't known: %w", s.node, says)
	}
	if err := v.needs(addressKeys(s.node)); err != nil {
		return err
	}
	addrs, here, err := v.addressesOf(s.node)
	if err != nil || here || len(addrs) == 0 {
		return err
	}
	hint := startAgent
	if !s.guessed {
		hint = "if it is, with another address by now, start calico-node or wait until it is ready; if another host has the name, give this one a name of its own, " +
			"in the network configuration or by calico-node's NODENAME"
	}
	return failf(CodeTryAgain, hint, "whether node %s is this one isn't known: etcd has the address %s of it, and this host hasn't (%w)",
		s.node, addrs[0], says)
}

// checkAgentsName refuses an ADD by a name that isn't the agent's before anything is written
// under it: the gate would refuse the pod, and a block that was claimed for the name would stay.
// Where the file that the agent wrote has the name nobody is asked; what else an agent has to
// say, it says at the gate.
func (s *session) checkAgentsName(ctx context.Context, key model.WorkloadEndpointKey) error {
	if s.conf.PolicySetupTimeout == 0 {
		return nil
	}
	wrote, err := os.ReadFile(filepath.Join(s.env.varDir, "nodename"))
	if err == nil && strings.TrimSpace(string(wrote)) == s.node {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(statusTimeout, s.conf.PolicySetupTimeout))
	defer cancel()
	err = gate.Ping(ctx, s.conf.AgentSocket, s.node)
	if rejected, ok := errors.AsType[*gate.RejectedError](err); ok && !rejected.Retry {
		return refused(key, err)
	}
	return nil
}

// askAhead asks the agent before the host's lock is held, as the answer may take a while.
func (s *session) askAhead() {
	if !s.named {
		_ = s.agent() // checkName says what came of it
	}
}

// correctNodename is what to do where the agent is another node's.
const correctNodename = "correct nodename in the network configuration, or the agent's"

// doubtTimeout is how long an agent is asked again that doesn't know, and isn't finding out.
const doubtTimeout = 2 * time.Second

// askAgent asks the agent whether the node's name is this host's. One that was started
// just now may need a moment to know; after a boot of the host five seconds and more, in which
// all its pods are deleted and made again.
func (s *session) askAgent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(statusTimeout, s.conf.DatastoreTimeout/2)) // etcd is asked in the other half
	defer cancel()
	asked := time.Now()
	var questioned error
	for {
		err := gate.Ping(ctx, s.conf.AgentSocket, s.node)
		if rejected, ok := errors.AsType[*gate.RejectedError](err); ok && rejected.Name == gate.NameInDoubt {
			if questioned = err; !rejected.Undecided && time.Since(asked) >= doubtTimeout {
				return err
			}
		} else if questioned == nil || ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return questioned
		case <-time.After(askAgain):
		}
	}
}

// joinNeeds is the first error that isn't a *ipam.NeedError, or one that needs it all:
// what two decisions want is read in one round trip.
func joinNeeds(errs ...error) error {
	var joined *ipam.NeedError
	for _, err := range errs {
		need, more := errors.AsType[*ipam.NeedError](err)
		switch {
		case err != nil && !more:
			return err
		case more && joined == nil:
			joined = need
		case more:
			wants := slices.Clone(joined.Wants)
			for _, w := range need.Wants {
				if !slices.Contains(wants, w) {
					wants = append(wants, w)
				}
			}
			joined = &ipam.NeedError{Wants: wants}
		}
	}
	if joined == nil {
		return nil
	}
	return joined
}
