// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
)

// Wanted returns the specific addresses that were asked for. Per family, the first source that names any wins: nerdctl
// passes the IPv4 address of a container in CNI_ARGS and its IPv6 address in runtimeConfig.
func Wanted(conf *netconf.Config, args netconf.Args) []netip.Addr {
	if conf.Pod.IPAddrsNoIPAM != nil {
		return conf.Pod.IPAddrsNoIPAM
	}
	var out []netip.Addr
	for _, addrs := range [][]netip.Addr{conf.Runtime.IPs, conf.Runtime.ArgsIPs, args.IPs, conf.Pod.IPAddrs} {
		v4, v6 := protocol.Families(out)
		for _, a := range addrs {
			if a.Is4() && !v4 || a.Is6() && !v6 {
				out = append(out, a)
			}
		}
	}
	return out
}

// Request returns the request to address management for the container interface id.
func Request(conf *netconf.Config, id protocol.Identity, wanted []netip.Addr, now time.Time) ipam.Request {
	r := ipam.Request{
		Host:       id.Key.Host,
		Handle:     id.Handle,
		Attributes: id.Attributes(),
		IPv4:       conf.IPAM.AssignIPv4,
		IPv6:       conf.IPAM.AssignIPv6,
		Pools4:     conf.IPAM.IPv4Pools,
		Pools6:     conf.IPAM.IPv6Pools,
		Addrs:      wanted,
		Endpoint:   id.Key,
		Now:        now,
	}
	if conf.Policy.Kubernetes { // else no profile has a namespace's labels
		r.Namespace = id.PodSpace
	}
	return r
}

// Addition is what an ADD writes to etcd.
type Addition struct {
	Conf *netconf.Config
	ID   protocol.Identity
	MAC  model.MAC
	MTU  int
	// Request is the request for addresses from our own address management.
	Request ipam.Request
	// Addrs replaces Request if non-nil: addresses assigned by another plugin, or fixed without address management.
	Addrs []netip.Addr
	// Pod is what the Kubernetes API knows about the pod. An empty UID means that the API wasn't asked.
	Pod gate.Pod
}

// Decision is the outcome of an Addition.
type Decision struct {
	Addrs    []netip.Addr
	Endpoint model.WorkloadEndpoint
	// Unchanged is the revision of the endpoint if there is nothing to write.
	Unchanged int64
	// NewAddrs and NewEndpoint say what an undo must take back.
	NewAddrs, NewEndpoint bool
}

// FirstRead returns the ranges that Decide must see first.
func (a Addition) FirstRead() []model.Range {
	ranges := []model.Range{model.KeyRange(model.ReadyKey{}), model.KeyRange(a.ID.Key)}
	for _, k := range profileKeys(a.Conf) {
		ranges = append(ranges, model.KeyRange(k))
	}
	if a.Addrs != nil {
		return ranges
	}
	return append(ranges, ipam.FirstRead(a.Request)...)
}

// Decide returns the single change that an ADD makes: addresses, the endpoint and, if missing, the network's profile.
func (a Addition) Decide(v *model.View) (Decision, model.Change, error) {
	if err := CheckReady(v); err != nil {
		return Decision{}, model.Change{}, err
	}
	entry := v.Get(a.ID.Key)
	old, valid := entry.Value.(model.WorkloadEndpoint)
	d, change := Decision{Addrs: a.Addrs}, model.Change{}
	if a.Addrs == nil {
		plan, choice, err := a.choose(v, old)
		if err != nil {
			return d, change, err
		}
		d.NewAddrs = true
		for _, c := range choice.Addrs {
			d.Addrs = append(d.Addrs, c.Addr)
			d.NewAddrs = d.NewAddrs && !c.Existing
		}
		change = plan.Change()
	}
	var err error
	if d.Endpoint, err = a.endpoint(d.Addrs, old); err != nil {
		return d, change, err
	}
	d.NewEndpoint = !valid || old.ContainerID != a.ID.Container
	if valid && old.Equal(d.Endpoint) {
		d.Unchanged = entry.Revision
	} else {
		change.Compares = append(change.Compares, v.Compare(a.ID.Key))
		change.Puts = append(change.Puts, model.Put{Key: a.ID.Key, Value: d.Endpoint})
	}
	change.Merge(profile(a.Conf, v))
	return d, change, nil
}

// choose assigns the pod's addresses and releases those of its former sandbox. If it picks an address of a host, as it
// may in a pool that contains the hosts' network, that address is reserved for good and the choice is repeated. If it
// picks one that a workload already uses, that address is recorded as the workload's, and the choice is repeated as
// well.
func (a Addition) choose(v *model.View, old model.WorkloadEndpoint) (*ipam.Plan, ipam.Choice, error) {
	var reserved []netip.Addr
	var living []ipam.Request
	for {
		plan := ipam.NewPlan(v)
		if err := a.releaseFormer(plan, old); err != nil {
			return nil, ipam.Choice{}, err
		}
		for _, addr := range reserved {
			if err := setAside(plan, a.Request, addr, "host"); err != nil {
				return nil, ipam.Choice{}, err
			}
		}
		switch entered, err := enter(plan, living); {
		case err != nil:
			return nil, ipam.Choice{}, err
		case entered+len(reserved) > maxHosts:
			return nil, ipam.Choice{}, protocol.Failf(protocol.CodeAddress, "delete some of these pods, or ask for another pool",
				"%d pods of this host live with addresses of another IPAM plugin's, such as %s, more than one ADD can enter", entered, living[0].Addrs[0])
		}
		choice, err := assign(plan, a.Request)
		if err != nil {
			return nil, choice, err
		}
		before := len(reserved) + len(living)
		for _, c := range choice.Addrs {
			whose, err := hostOf(v, c, netip.Addr{})
			if err != nil {
				return nil, choice, err
			}
			others, err := a.living(v, c)
			living = append(living, others...)
			switch {
			case err != nil:
				return nil, choice, err
			case len(others) > 0:
			case whose == "":
			case slices.Contains(a.Request.Addrs, c.Addr) || len(reserved) >= maxHosts:
				return nil, choice, isHosts(c.Addr, whose)
			default:
				reserved = append(reserved, c.Addr)
			}
		}
		if len(reserved)+len(living) == before {
			return plan, choice, nil
		}
	}
}

// releaseFormer releases what the endpoint's former sandbox held, if the pod has a new sandbox.
func (a Addition) releaseFormer(plan *ipam.Plan, old model.WorkloadEndpoint) error {
	if old.ContainerID == "" || old.ContainerID == a.ID.Container {
		return nil
	}
	former := a.ID
	former.Container, former.Handle = old.ContainerID, protocol.HandleID(a.ID.Network, old.ContainerID, a.ID.IfName)
	freed, err := plan.Release(former.Handle, a.Request.Now)
	if err != nil {
		return err
	}
	return releaseOlder(plan, former.OlderHandles(), old, &Removed{Addrs: freed}, a.Request.Now)
}

// maxBlocks limits how many blocks the addresses of one container may lie in. Claiming or deleting a block takes two of
// the 128 operations that etcd accepts in one transaction, and the pod's next sandbox claims as many as the former one
// releases.
const maxBlocks = 30

// fits rejects requested addresses that are spread over more blocks than one etcd transaction can write.
func fits(choice ipam.Choice) error {
	blocks := make(map[netip.Prefix]bool)
	for _, a := range choice.Addrs {
		blocks[a.Block] = true
	}
	if len(blocks) <= maxBlocks {
		return nil
	}
	return protocol.Failf(protocol.CodeConfig, "ask for fewer addresses, or for such as lie closer together",
		"the addresses that are asked for lie in %d blocks: those of one container may lie in %d", len(blocks), maxBlocks)
}

// assign returns the addresses of a handle. Addresses that the handle already holds were reported by an earlier ADD for
// the same interface; they are all that this ADD gets, whatever the configuration says by now, so nothing is allocated
// twice.
func assign(plan *ipam.Plan, r ipam.Request) (ipam.Choice, error) {
	held, err := plan.Held(r.Handle)
	if err != nil {
		return ipam.Choice{}, err
	}
	if len(held) == 0 {
		choice, err := plan.Assign(r)
		if err != nil {
			return choice, err
		}
		return choice, fits(choice)
	}
	names := make([]string, len(held))
	for i, a := range held {
		names[i] = a.Addr.String()
		if network := a.Attributes["network"]; network != "" && network != r.Attributes["network"] {
			return ipam.Choice{}, protocol.Failf(protocol.CodeAddress, "give the container, its interface or the network a name without dots",
				"address %s: another container has it as handle %s, which its names make as well as this one's: it is of network %s", a.Addr, r.Handle, network)
		}
		if node := a.Attributes["node"]; node != "" && node != r.Host {
			return ipam.Choice{}, protocol.Failf(protocol.CodeAddress, "give another CNI_CONTAINERID: a container's is its own among all nodes. Or DEL that container first, on its node; on this one, if that is its former name",
				"address %s: node %s has it for a container of the same id, as handle %s", a.Addr, node, r.Handle)
		}
	}
	for _, addr := range r.Addrs {
		if !slices.ContainsFunc(held, func(a ipam.Assigned) bool { return a.Addr == addr }) {
			return ipam.Choice{}, protocol.Failf(protocol.CodeAddress, "delete the container first, or ask for what it has",
				"address %s: the container's interface has %s already, as handle %s", addr, strings.Join(names, " and "), r.Handle)
		}
	}
	// Keep the order of the first answer.
	place := func(a netip.Addr) int { return slices.Index(r.Addrs, a) }
	slices.SortStableFunc(held, func(a, b ipam.Assigned) int {
		return cmp.Or(cmp.Compare(a.Addr.BitLen(), b.Addr.BitLen()), cmp.Compare(place(a.Addr), place(b.Addr)))
	})
	return ipam.Choice{Addrs: held}, nil
}
