// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"

	"github.com/calico-go/calico/pkg/model"
)

// IPAMConfiguration configures how addresses are allocated.
type IPAMConfiguration struct {
	StrictAffinity     *bool `json:"strictAffinity,omitempty" doc:"Hosts take no address out of each other's blocks. Default false."`
	AutoAllocateBlocks *bool `json:"autoAllocateBlocks,omitempty" doc:"Hosts claim blocks as they need them. Default true."`
	MaxBlocksPerHost   *int  `json:"maxBlocksPerHost,omitempty" doc:"Only 0, no limit, is supported yet."`
	IPCooldownSeconds  *int  `json:"ipCooldownSeconds,omitempty" doc:"Only 0 is supported yet. Of a block's free addresses, the one that was given back first is taken first."`

	KubeVirtPersistence string `json:"kubeVirtVMAddressPersistence,omitempty" only:"Disabled" refused:"not supported: the address of a virtual machine goes with its pod"`
}

var ipamConfigurationKind = newKind(one(readIPAMConfiguration), writeIPAMConfiguration, Kind{
	Name: "IPAMConfiguration", Plural: "IPAMConfigurations", Aliases: []string{"ipamconfig", "ipamconfigs"},
	ranges: keyRanges(model.IPAMConfigKey{}), of: keyed[model.IPAMConfigKey], always: isDefault,
	custom: &custom{columns: []string{"Strict affinity", "strictAffinity"}, rules: onlyDefault},
	Columns: []Column{
		cell("STRICTAFFINITY", false, func(c *IPAMConfiguration) string { return fmt.Sprint(orZero(c.StrictAffinity)) }),
		cell("AUTOALLOCATEBLOCKS", false, func(c *IPAMConfiguration) string {
			return fmt.Sprint(c.AutoAllocateBlocks == nil || *c.AutoAllocateBlocks)
		}),
	},
})

func readIPAMConfiguration(_ model.IPAMConfigKey, c *model.IPAMConfig, s *Stored) *IPAMConfiguration {
	s.Metadata.Name = "default"
	if c == nil {
		return &IPAMConfiguration{}
	}
	return &IPAMConfiguration{StrictAffinity: &c.StrictAffinity, AutoAllocateBlocks: &c.AutoAllocateBlocks}
}

func writeIPAMConfiguration(r writing[IPAMConfiguration]) (keys, error) {
	spec := r.spec
	c := model.DefaultIPAMConfig
	c.Meta = r.meta
	if spec.StrictAffinity != nil {
		c.StrictAffinity = *spec.StrictAffinity
	}
	if spec.AutoAllocateBlocks != nil {
		c.AutoAllocateBlocks = *spec.AutoAllocateBlocks
	}
	switch {
	case r.Metadata.Name != "default":
		return keys{}, r.at("metadata.name", "%q: want default", r.Metadata.Name)
	case orZero(spec.MaxBlocksPerHost) != 0:
		return keys{}, r.at("spec.maxBlocksPerHost", "not supported yet: hosts would claim more all the same")
	case orZero(spec.IPCooldownSeconds) != 0:
		return keys{}, r.at("spec.ipCooldownSeconds", "not supported yet")
	case !c.StrictAffinity && !c.AutoAllocateBlocks:
		return keys{}, r.at("spec.autoAllocateBlocks", "false needs strictAffinity: true")
	}
	return put(model.IPAMConfigKey{}, c), nil
}
