// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// identity says who a container interface is, in etcd and in the kernel.
type identity struct {
	key      model.WorkloadEndpointKey
	network  string
	hostIf   string // the host's end
	handle   string // of its addresses
	alias    string // of the host's end
	cid      string
	ifName   string
	podName  string // "" outside Kubernetes
	podSpace string
	blocks   []netip.Prefix // that name the handle, where GC has seen any
}

func newIdentity(network, node string, e environ) identity {
	id := identity{
		network: network,
		cid:     e.containerID,
		ifName:  e.ifName,
		handle:  handleID(network, e.containerID, e.ifName),
		key: model.WorkloadEndpointKey{
			Host: node, Orchestrator: "cni", Workload: e.containerID, Endpoint: e.ifName,
		},
	}
	if e.args.PodNamespace != "" && e.args.PodName != "" {
		id.podSpace, id.podName = e.args.PodNamespace, e.args.PodName
		id.key.Orchestrator = "k8s"
		id.key.Workload = e.args.PodNamespace + "." + e.args.PodName
	}
	id.hostIf = hostInterface(id.key.Workload, e.ifName)
	id.alias = linkAlias(network, id.handle)
	return id
}

// maxNetwork is how long a network's name may be: with a container id of 64
// digits, as runtimes have, and any interface's name it makes a handle.
const maxNetwork = model.MaxName - 64 - 15 - len("..")

// checkNames refuses names that no ADD can use: what is written under them could
// not be read again, nor deleted.
func (s *session) checkNames() error {
	if n := len(s.conf.Name); n > maxNetwork {
		return failf(CodeConfig, "give the network a shorter name", "name: of %d bytes: at most %d", n, maxNetwork)
	}
	if err := model.CheckHost(s.node); err != nil {
		return failf(CodeConfig, s.nodeFrom.hint, "%s: %w", s.nodeFrom.what, err)
	}
	return nil
}

// check refuses what a container and a pod can add to that.
func (id identity) check() error {
	for _, n := range []struct{ what, name string }{{"workload's name", id.key.Workload}, {"handle", id.handle}} {
		if len(n.name) > model.MaxName {
			return failf(CodeEnvironment, "give the container, the pod or the network a shorter name",
				"the %s would be %d bytes long: at most %d", n.what, len(n.name), model.MaxName)
		}
	}
	return nil
}

// handleID names the addresses of one sandbox's interface, so that the late
// DEL of an old sandbox never frees a new one's.
func handleID(network, containerID, ifName string) string {
	return network + "." + containerID + "." + ifName
}

// hostPrefix starts the name of every host interface that we make.
const hostPrefix = "cali"

func hostInterface(workload, ifName string) string {
	if ifName != "eth0" {
		workload += "." + ifName
	}
	sum := sha1.Sum([]byte(workload))
	return hostPrefix + hex.EncodeToString(sum[:])[:11]
}

const (
	aliasPrefix = link.WorkloadAlias
	// maxAlias is IFALIASZ less the terminating zero, linux/if.h.
	maxAlias = 255
)

// linkAlias is what the host's end carries to say whose it is.
func linkAlias(network, handle string) string {
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

// aliasOfNetwork reports whether the alias may be one of the network's links.
// A network's name may have dots, so that another network's may match too:
// "a" is a prefix of "a.b".
func aliasOfNetwork(alias, network string) bool {
	return strings.HasPrefix(alias, aliasPrefix+network+".") || strings.HasPrefix(alias, hashedAliasPrefix(network))
}

// sameInterface reports whether the alias is this container interface's, of any
// network.
func (id identity) sameInterface(alias string) bool {
	return isOurAlias(alias) && strings.HasSuffix(alias, "."+id.cid+"."+id.ifName)
}

// podMAC derives the address of the pod's end from the handle, so that doing
// the same ADD again gives the same one. It is locally administered, unicast.
func podMAC(handle string) model.MAC {
	sum := sha256.Sum256([]byte("mac " + handle))
	mac := model.MAC(sum[:6])
	mac[0] = mac[0]&^0x01 | 0x02
	return mac
}

// attributes are kept in the block beside the addresses of a handle: GC and a
// DEL that knows the pod by another name find the endpoint by them.
func (id identity) attributes() map[string]string {
	a := map[string]string{
		"node": id.key.Host, "network": id.network,
		"orchestrator": id.key.Orchestrator, "workload": id.key.Workload,
	}
	if id.podName != "" {
		a["namespace"], a["pod"] = id.podSpace, id.podName
	}
	// A handle doesn't tell where one name in it ends and the next begins.
	if strings.Contains(id.cid, ".") {
		a["container"] = id.cid
	}
	if strings.Contains(id.ifName, ".") {
		a["interface"] = id.ifName
	}
	return a
}

// dotted reports whether other names may make the same handle on one interface: what
// has it can't be told by its alias.
func (id identity) dotted() bool { return strings.Contains(id.cid+id.ifName, ".") }

// sameNames reports whether what is kept beside an address of a handle is not of other
// names that make the same handle.
func sameNames(kept, mine map[string]string) bool {
	for _, name := range [...]string{"network", "container", "interface"} {
		if v, ok := kept[name]; ok && v != mine[name] {
			return false
		}
	}
	return true
}

func isOurAlias(alias string) bool { return strings.HasPrefix(alias, aliasPrefix) }
