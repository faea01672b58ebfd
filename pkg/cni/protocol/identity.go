// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// Identity names a container interface in etcd and in the kernel.
type Identity struct {
	Key       model.WorkloadEndpointKey
	Network   string
	HostIf    string // the host's end
	Handle    string // of its addresses
	Alias     string // of the host's end
	Container string
	IfName    string
	PodName   string // "" outside Kubernetes
	PodSpace  string
}

// NewIdentity returns the identity of the container interface that the call is about.
func NewIdentity(network, node string, e Environ) Identity {
	id := Identity{
		Network: network, Container: e.ContainerID, IfName: e.IfName, Handle: HandleID(network, e.ContainerID, e.IfName),
		Key: model.WorkloadEndpointKey{Host: node, Orchestrator: "cni", Workload: e.ContainerID, Endpoint: e.IfName},
	}
	if e.Args.PodNamespace != "" && e.Args.PodName != "" {
		id.PodSpace, id.PodName = e.Args.PodNamespace, e.Args.PodName
		id.Key.Orchestrator, id.Key.Workload = "k8s", id.PodSpace+"."+id.PodName
	}
	id.HostIf = HostInterface(id.Key.Workload, e.IfName)
	id.Alias = LinkAlias(network, id.Handle)
	return id
}

// MaxNetwork is the maximum length of a network's name: together with a container ID of 64 digits, as runtimes use, and
// the longest interface name, it still makes a valid handle.
const MaxNetwork = model.MaxName - 64 - 15 - len("..")

// Check rejects names that no ADD can use: what is written under them could be neither read again nor deleted.
func (id Identity) Check() error {
	for _, n := range []struct{ what, name string }{{"workload's name", id.Key.Workload}, {"handle", id.Handle}} {
		if len(n.name) > model.MaxName {
			return Failf(CodeEnvironment, "give the container, the pod or the network a shorter name",
				"the %s would be %d bytes long: at most %d", n.what, len(n.name), model.MaxName)
		}
	}
	return nil
}

// HandleID returns the handle for the addresses of one sandbox's interface. It contains the container ID so that a late
// DEL of an old sandbox never frees a new one's addresses.
func HandleID(network, containerID, ifName string) string {
	return network + "." + containerID + "." + ifName
}

// OlderHandles returns the names that older versions of Calico gave the handle; "" means no handle.
func (id Identity) OlderHandles() []string {
	return append(id.OlderHandlesOfContainer(), "", id.Key.Workload, id.Network+"."+id.Key.Workload)
}

// OlderHandlesOfContainer returns the older handles that no other container of the workload can have had.
func (id Identity) OlderHandlesOfContainer() []string {
	return []string{id.Network + "." + id.Container, id.Container}
}

// Sandboxes is the inverse of HandleID. It returns several identities if container IDs and interface names with dots
// make the same handle.
func Sandboxes(network, handle string) (all []Identity) {
	rest, ok := strings.CutPrefix(handle, network+".")
	for at, c := range rest {
		if ok && c == '.' {
			all = append(all, Identity{Network: network, Handle: handle, Container: rest[:at], IfName: rest[at+1:]})
		}
	}
	return all
}

// HostPrefix is the prefix of all host interface names that we make.
const HostPrefix = "cali"

// HostInterface returns the name of the host's end.
func HostInterface(workload, ifName string) string {
	if ifName != "eth0" {
		workload += "." + ifName
	}
	sum := sha1.Sum([]byte(workload))
	return HostPrefix + hex.EncodeToString(sum[:])[:11]
}

const (
	aliasPrefix = link.WorkloadAlias
	// maxAlias is IFALIASZ less the terminating zero, linux/if.h.
	maxAlias = 255
)

// LinkAlias returns the alias that marks the owner of the host's end.
func LinkAlias(network, handle string) string {
	if alias := aliasPrefix + handle; len(alias) <= maxAlias {
		return alias
	}
	sum := sha256.Sum256([]byte(handle))
	return hashedAliasPrefix(network) + hex.EncodeToString(sum[:])
}

func hashedAliasPrefix(network string) string {
	sum := sha256.Sum256([]byte(network))
	return aliasPrefix + "sha256:" + hex.EncodeToString(sum[:])[:16] + ":"
}

// AliasedHandle returns the handle that an alias names. A shortened alias names none.
func AliasedHandle(alias string) string { return strings.TrimPrefix(alias, aliasPrefix) }

// AliasOfNetwork reports whether the alias may belong to one of the network's links. Names may have dots, so it may
// also match aliases of another network: "a" is a prefix of "a.b".
func AliasOfNetwork(alias, network string) bool {
	return strings.HasPrefix(alias, aliasPrefix+network+".") || strings.HasPrefix(alias, hashedAliasPrefix(network))
}

// IsOurAlias reports whether the alias marks a link of calico's.
func IsOurAlias(alias string) bool { return strings.HasPrefix(alias, aliasPrefix) }

// SameInterface reports whether the alias belongs to this container interface, in any network.
func (id Identity) SameInterface(alias string) bool {
	return IsOurAlias(alias) && strings.HasSuffix(alias, "."+id.Container+"."+id.IfName)
}

// PodMAC derives the MAC address of the pod's end from the handle, so that repeating an ADD gives the same one. It is
// locally administered and unicast.
func PodMAC(handle string) model.MAC {
	sum := sha256.Sum256([]byte("mac " + handle))
	mac := model.MAC(sum[:6])
	mac[0] = mac[0]&^0x01 | 0x02
	return mac
}

// Attributes returns the attributes stored in the block along with the addresses of a handle. They lead GC, and a DEL
// that knows the pod under another name, to the endpoint.
func (id Identity) Attributes() map[string]string {
	a := map[string]string{
		"node": id.Key.Host, "network": id.Network,
		"orchestrator": id.Key.Orchestrator, "workload": id.Key.Workload, "interface": id.Key.Endpoint,
	}
	if id.PodName != "" {
		a["namespace"], a["pod"] = id.PodSpace, id.PodName
	}
	return a
}

// Attributed returns the key of the endpoint that the attributes name. ifName is used for older attributes, which lack
// the interface.
func Attributed(a map[string]string, ifName string) (model.WorkloadEndpointKey, bool) {
	return model.WorkloadEndpointKey{
		Host: a["node"], Orchestrator: a["orchestrator"], Workload: a["workload"], Endpoint: cmp.Or(a["interface"], ifName),
	}, a["node"] != "" && a["workload"] != ""
}
