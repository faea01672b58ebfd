// SPDX-License-Identifier: Apache-2.0

package render

import (
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
)

// servesHost is whether there is the chain of what the agents of the cluster themselves serve.
func (u Uses) servesHost() bool { return u.BGPPort != 0 }

// asksServices has what begins a connection with the host itself go by the chain of services, which returns what may go on. What is
// of a connection pays one comparison.
func (u Uses) asksServices(match ...table.Statement) []table.Rule {
	if !u.servesHost() {
		return nil
	}
	r := jump(chainServices, "")
	r.Do = append(append(match, table.State{New: true, Invalid: true, Untracked: true}), r.Do...)
	return []table.Rule{r}
}

// services drops what strangers say to servers of the agent's own, which would cost the host each time.
func (x Renderer) services(u Uses) []table.Rule {
	var out []table.Rule
	if u.BGPPort != 0 {
		for _, version := range [...]int{4, 6} {
			r := drop("BGP from no peer")
			r.Do = append([]table.Statement{
				table.Is{Field: port(model.ProtocolTCP, true), Value: table.PortBytes(u.BGPPort)},
				table.InSet{Fields: []table.Field{address(version, false)}, Not: true, Set: Versioned(SetPeers, version)},
			}, r.Do...)
			out = append(out, r)
		}
	}
	return out
}
