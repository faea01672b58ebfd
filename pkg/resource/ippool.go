// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// Encapsulation says when packets between hosts are encapsulated.
type Encapsulation string

// The values of Encapsulation.
const (
	Never       Encapsulation = "Never"
	Always      Encapsulation = "Always"
	CrossSubnet Encapsulation = "CrossSubnet"
)

// UnmarshalText accepts any case.
func (e *Encapsulation) UnmarshalText(text []byte) error {
	return word(e, text, e.words())
}

func (Encapsulation) words() []string {
	return []string{string(Never), string(Always), string(CrossSubnet)}
}

// AssignmentMode says who gets addresses.
type AssignmentMode string

// The values of AssignmentMode.
const (
	Automatic AssignmentMode = "Automatic"
	Manual    AssignmentMode = "Manual"
)

// UnmarshalText accepts any case.
func (m *AssignmentMode) UnmarshalText(text []byte) error { return word(m, text, m.words()) }

func (AssignmentMode) words() []string { return []string{string(Automatic), string(Manual)} }

// IPPool is a range of addresses for workloads.
type IPPool struct {
	CIDR             CIDR          `json:"cidr" doc:"The network. It is fixed: another one is another pool."`
	BlockSize        int           `json:"blockSize,omitempty" least:"1" doc:"Length of the prefix of the blocks that hosts claim: 20 to 32 (default 26), for IPv6 116 to 128 (122). Once there are blocks, calicoctl ipam migrate changes it."`
	IPIPMode         Encapsulation `json:"ipipMode,omitempty" default:"Never" doc:"When packets between hosts are wrapped in IP, IPv4 only; CrossSubnet: where the hosts share no network. Default Never."`
	VXLANMode        Encapsulation `json:"vxlanMode,omitempty" default:"Never" doc:"When packets between hosts are wrapped in VXLAN, likewise. One of both modes at most."`
	NATOutgoing      bool          `json:"natOutgoing,omitempty" doc:"Packets to addresses in no pool leave with the host's address."`
	Disabled         bool          `json:"disabled,omitempty" doc:"No address is taken from it; those in use stay."`
	NodeSelector     string        `json:"nodeSelector,omitempty" default:"all()" doc:"Selector of the nodes whose pods get addresses of it. A pod or configuration that asks for the pool gets them on any node, so that !all() parks it. Default all()."`
	DisableBGPExport bool          `json:"disableBGPExport,omitempty" doc:"Its routes are announced to nobody by BGP."`
	HandsOut         *bool         `json:"handsOutAddresses,omitempty" doc:"Ours. False where another IPAM plugin gives the addresses. Default true."`

	NamespaceSelector string         `json:"namespaceSelector,omitempty" default:"all()" doc:"Selector of the namespaces whose pods get addresses of it; projectcalico.org/name is a namespace's name. A pod or configuration that asks for the pool, or for an address of it, gets it in any namespace, and tunnels don't ask. Workloads outside Kubernetes get addresses only of pools with all(), the default."`
	AllowedUses       []string       `json:"allowedUses,omitempty" doc:"What its addresses are for: Workload, Tunnel or both, the default."`
	IPIP              anything       `json:"ipip,omitempty" refused:"write ipipMode"`
	NATOutgoingV1     bool           `json:"nat-outgoing,omitempty" only:"false" refused:"write natOutgoing"`
	AssignmentMode    AssignmentMode `json:"assignmentMode,omitempty" default:"Automatic" doc:"Manual: only pods and configurations that ask for the pool, or for an address of it, get addresses, and tunnels: see allowedUses. Default Automatic."`
}

func (IPPool) validations() []Validation {
	return []Validation{
		{"self.cidr == oldSelf.cidr", "cidr: it can't change: make a new pool, disable this one, move its workloads"},
		{"!has(self.ipipMode) || !has(self.vxlanMode) || self.ipipMode == 'Never' || self.vxlanMode == 'Never'", "vxlanMode: a pool has ipipMode or vxlanMode, not both"},
	}
}

var encapModes = map[Encapsulation]model.EncapMode{"": model.EncapNever, Never: model.EncapNever, Always: model.EncapAlways, CrossSubnet: model.EncapCrossSubnet}

func encapsulation(m model.EncapMode) Encapsulation {
	for word, mode := range encapModes {
		if mode == m && word != "" {
			return word
		}
	}
	return Never
}

const tunnelDevice = "tunl0"

var ipPoolKind = newKind(one(readPool), writePool, Kind{
	Name: "IPPool", Plural: "IPPools", Aliases: []string{"ipp", "ipps", "pool", "pools"},
	ranges: prefix(model.PoolPrefix()), judged: prefix(model.BlockPrefix(false), model.BlockPrefix(true)), of: keyed[model.PoolKey], mayDelete: poolInUse,
	words:  []string{"ipip", "ipipMode"},
	custom: &custom{short: []string{"ipp"}, columns: []string{"CIDR", "cidr", "IPIP", "ipipMode", "VXLAN", "vxlanMode", "NAT", "natOutgoing", "Disabled", "disabled"}},
	also:   func(s *Stored) string { return cidrOf(s).String() },
	alike:  func(s *Stored) []string { return []string{strings.ReplaceAll(cidrOf(s).String(), "/", "-")} },
	Columns: []Column{
		cell("CIDR", false, func(p *IPPool) string { return p.CIDR.String() }),
		cell("NAT", true, func(p *IPPool) string { return fmt.Sprint(p.NATOutgoing) }),
		cell("IPIPMODE", true, func(p *IPPool) string { return string(p.IPIPMode) }),
		cell("VXLANMODE", true, func(p *IPPool) string { return string(p.VXLANMode) }),
		cell("DISABLED", true, func(p *IPPool) string { return fmt.Sprint(p.Disabled) }),
		cell("SELECTOR", false, func(p *IPPool) string { return p.NodeSelector }),
	},
	retired: func(r Resource) (Resource, bool) { // so that no address is allocated from it after the check for those in use
		spec := *specOf[IPPool](r)
		was := spec.Disabled
		spec.Disabled, r.Spec = true, &spec
		return r, !was
	},
})

func cidrOf(s *Stored) netip.Prefix { return s.Entries[0].Key.(model.PoolKey).CIDR }

func readPool(key model.PoolKey, pool *model.Pool, s *Stored) *IPPool {
	s.Metadata.Name = model.Pool{CIDR: key.CIDR}.ResourceName()
	spec := &IPPool{CIDR: CIDR{key.CIDR}}
	if pool != nil {
		s.Metadata.Name = pool.ResourceName()
		spec.BlockSize, spec.NATOutgoing, spec.Disabled, spec.DisableBGPExport = pool.BlockSize, pool.Masquerade, pool.Disabled, pool.DisableBGPExport
		spec.IPIPMode, spec.VXLANMode = encapsulation(pool.IPIPMode), encapsulation(pool.VXLANMode)
		spec.NodeSelector, spec.NamespaceSelector = cmp.Or(pool.NodeSelector, "all()"), pool.NamespaceSelector
		if pool.Manual {
			spec.AssignmentMode = Manual
		}
		if pool.AllowedUses != "" {
			spec.AllowedUses = strings.Split(pool.AllowedUses, ",")
		}
		if !pool.IPAM {
			spec.HandsOut = new(bool)
		}
	}
	return spec
}

func writePool(r writing[IPPool]) (keys, error) {
	spec := r.spec
	cidr := spec.CIDR.Prefix
	pool := model.Pool{CIDR: cidr, IPAM: true, IPIPMode: encapModes[spec.IPIPMode], VXLANMode: encapModes[spec.VXLANMode],
		Masquerade: spec.NATOutgoing, Disabled: spec.Disabled, BlockSize: spec.BlockSize, DisableBGPExport: spec.DisableBGPExport, Manual: spec.AssignmentMode == Manual, Meta: r.meta}
	pool.Name = r.Metadata.Name
	if pool.Name == (model.Pool{CIDR: cidr}).ResourceName() || pool.Name == cidr.String() {
		pool.Name = ""
	}
	if spec.HandsOut != nil {
		pool.IPAM = *spec.HandsOut
	}
	if spec.NodeSelector != "all()" {
		pool.NodeSelector = spec.NodeSelector
	}
	if spec.NamespaceSelector != "all()" {
		pool.NamespaceSelector = spec.NamespaceSelector
	}
	if pool.IPIPMode != model.EncapNever {
		pool.IPIP = tunnelDevice
	}
	if pool.AllowedUses = strings.Join(spec.AllowedUses, ","); pool.Serves(model.ForWorkloads) && pool.Serves(model.ForTunnels) {
		pool.AllowedUses = ""
	}
	switch {
	case !cidr.IsValid():
		return keys{}, r.at("spec.cidr", "missing")
	case pool.IPIPMode != model.EncapNever && pool.VXLANMode != model.EncapNever:
		return keys{}, r.at("spec.vxlanMode", "a pool has ipipMode or vxlanMode, not both")
	case r.old == nil && strings.Contains(pool.Name, "/"):
		return keys{}, r.dnsName() // a CIDR names the pool that has it
	case slices.ContainsFunc(spec.AllowedUses, func(use string) bool { return use != model.ForWorkloads && use != model.ForTunnels }):
		return keys{}, r.at("spec.allowedUses", "want Workload, Tunnel or both: LoadBalancer is not supported")
	}
	var k keys
	size := 0 // block size as stored
	if r.old != nil {
		if r.was.CIDR != spec.CIDR {
			return keys{}, r.at("spec.cidr", "a pool's CIDR can't change from %s: make a new pool, disable this one, move its workloads", r.was.CIDR)
		}
		if stored, ok := parsed[model.Pool](r.old.Entries[0]); ok {
			if stored.IPIP != "" && pool.IPIP != "" {
				pool.IPIP = stored.IPIP // a device of another name
			}
			if spec.BlockSize == 0 {
				pool.BlockSize = stored.BlockSize
			}
			size = stored.BlockSize
		}
	} else {
		k.vacant = append(k.vacant, model.PoolPrefix()) // another pool with these addresses, or this name
		for _, e := range r.entries {
			if key, ok := e.Key.(model.PoolKey); ok && key.CIDR.Overlaps(cidr) {
				other, _ := parsed[model.Pool](e)
				other.CIDR = key.CIDR
				return keys{}, r.at("spec.cidr", "%s overlaps the pool %s (%s)", cidr, key.CIDR, other.ResourceName())
			}
		}
	}
	if now := cmp.Or(pool.BlockSize, max(model.DefaultBlockSize(cidr.Addr().Is6()), cidr.Bits())); now != size {
		k.vacant = append(k.vacant, model.BlockPrefix(cidr.Addr().Is6()))
		if err := otherBlocks(cidr, now, r.entries); err != nil {
			return keys{}, r.at("spec.blockSize", "%w", err)
		}
	}
	k.put(model.PoolKey{CIDR: cidr}, pool)
	return k, nil
}

// otherBlocks returns an error if a pool has blocks of a size other than this.
func otherBlocks(cidr netip.Prefix, size int, entries []model.Entry) error {
	n, other := 0, 0
	for _, e := range entries {
		if key, ok := e.Key.(model.BlockKey); ok && cidr.Overlaps(key.CIDR) && key.CIDR.Bits() != size && (n == 0 || key.CIDR.Bits() == other) {
			n, other = n+1, key.CIDR.Bits()
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d beside %s of /%d in %s: write blockSize %d, and change it by calicoctl ipam migrate", size, Count(n, "block"), other, cidr, other)
}

// poolInUse returns an error if addresses of a pool are in use.
func poolInUse(s Stored, entries []model.Entry) error {
	cidr := cidrOf(&s)
	used, nodes := 0, map[string]bool{}
	for _, e := range entries {
		key, ok := e.Key.(model.BlockKey)
		if !ok || !cidr.Overlaps(key.CIDR) {
			continue
		}
		block, ok := parsed[model.Block](e)
		if !ok {
			return fmt.Errorf("block %s can't be read, so addresses of it may be in use", key.CIDR)
		}
		if n := block.Size() - len(block.Unallocated); n > 0 {
			used += n
			nodes[block.Affinity] = true
		}
	}
	if used == 0 {
		return nil
	}
	return fmt.Errorf("%s in use on %s: set spec.disabled, and delete it when its workloads are gone", Count(used, "address"), Count(len(nodes), "node"))
}
