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

// Identity says who a container interface is, in etcd and in the kernel.
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

// NewIdentity is that of the container interface that the call is about.
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

// MaxNetwork is how long a network's name may be: with a container id of 64
// digits, as runtimes have, and any interface's name it makes a handle.
const MaxNetwork = model.MaxName - 64 - 15 - len("..")

// Check refuses names that no ADD can use: what is written under them could
// not be read again, nor deleted.
func (id Identity) Check() error {
	for _, n := range []struct{ what, name string }{{"workload's name", id.Key.Workload}, {"handle", id.Handle}} {
		if len(n.name) > model.MaxName {
			return Failf(CodeEnvironment, "give the container, the pod or the network a shorter name",
				"the %s would be %d bytes long: at most %d", n.what, len(n.name), model.MaxName)
		}
	}
	return nil
}

// HandleID names the addresses of one sandbox's interface, so that the late
// DEL of an old sandbox never frees a new one's.
func HandleID(network, containerID, ifName string) string {
	return network + "." + containerID + "." + ifName
}

// OlderHandles are what older versions of Calico called the handle; "" is none.
func (id Identity) OlderHandles() []string {
	return append(id.OlderHandlesOfContainer(), "", id.Key.Workload, id.Network+"."+id.Key.Workload)
}

// OlderHandlesOfContainer are those of the older handles that no other container of the workload had.
func (id Identity) OlderHandlesOfContainer() []string {
	return []string{id.Network + "." + id.Container, id.Container}
}

// Sandboxes undoes HandleID: container ids and interface names may have dots, so that several make the same handle.
func Sandboxes(network, handle string) (all []Identity) {
	rest, ok := strings.CutPrefix(handle, network+".")
	for at, c := range rest {
		if ok && c == '.' {
			all = append(all, Identity{Network: network, Handle: handle, Container: rest[:at], IfName: rest[at+1:]})
		}
	}
	return all
}

// HostPrefix starts the name of every host interface that we make.
const HostPrefix = "cali"

// HostInterface is the name of the host's end.
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

// LinkAlias is what the host's end carries to say whose it is.
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

// AliasedHandle is the handle that an alias names. A shortened alias names none.
func AliasedHandle(alias string) string { return strings.TrimPrefix(alias, aliasPrefix) }

// AliasOfNetwork reports whether the alias may be one of the network's links.
// A network's name may have dots, so that another network's may match too:
// "a" is a prefix of "a.b".
func AliasOfNetwork(alias, network string) bool {
	return strings.HasPrefix(alias, aliasPrefix+network+".") || strings.HasPrefix(alias, hashedAliasPrefix(network))
}

// IsOurAlias reports whether a link that has the alias is calico's.
func IsOurAlias(alias string) bool { return strings.HasPrefix(alias, aliasPrefix) }

// SameInterface reports whether the alias is this container interface's, of any
// network.
func (id Identity) SameInterface(alias string) bool {
	return IsOurAlias(alias) && strings.HasSuffix(alias, "."+id.Container+"."+id.IfName)
}

// PodMAC derives the address of the pod's end from the handle, so that doing
// the same ADD again gives the same one. It is locally administered, unicast.
func PodMAC(handle string) model.MAC {
	sum := sha256.Sum256([]byte("mac " + handle))
	mac := model.MAC(sum[:6])
	mac[0] = mac[0]&^0x01 | 0x02
	return mac
}

// Attributes are kept in the block beside the addresses of a handle: GC and a
// DEL that knows the pod by another name find the endpoint by them.
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

// Attributed is the endpoint that the attributes say the addresses were given to. ifName is for older ones, which don't say it.
func Attributed(a map[string]string, ifName string) (model.WorkloadEndpointKey, bool) {
	return model.WorkloadEndpointKey{
		Host: a["node"], Orchestrator: a["orchestrator"], Workload: a["workload"], Endpoint: cmp.Or(a["interface"], ifName),
	}, a["node"] != "" && a["workload"] != ""
}
