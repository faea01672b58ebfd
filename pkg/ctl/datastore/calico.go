// SPDX-License-Identifier: Apache-2.0

package datastore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// separator is the line between the parts of an export by Calico's `calicoctl datastore migrate export`: lists of resources in
// YAML, the ClusterInformation in JSON, and the data of address management in JSON.
var separator = []byte("\n===\n")

func isCalico(data []byte) bool { return bytes.Count(data, separator) == 2 }

// calicoIPAM is the last part. Values are as in etcd, in the data model of version 2, which is parsed here.
type calicoIPAM struct {
	Affinities []calicoPair `json:"block_affinities"`
	Blocks     []calicoPair `json:"blocks"`
	Handles    []calicoPair `json:"handles"`
	Config     *calicoPair  `json:"config"`
}

type calicoPair struct{ Key, Value json.RawMessage }

// An etcdDump is what `etcdctl get --prefix /calico/ -w json` prints.
type etcdDump struct {
	Pairs []struct{ Key, Value []byte } `json:"kvs"`
}

func isDump(data []byte) bool {
	var dump etcdDump
	return json.Unmarshal(data, &dump) == nil && dump.Pairs != nil
}

// A reading collects what data of Calico's has.
type reading struct {
	name      string // of the file
	nodes     *nodes
	resources []resource.Resource
	records   []record
	left      map[string]int // what isn't imported and why: how many
	errs      []error
}

func (r *reading) fail(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(r.name+": "+format, args...))
}

func parseCalico(name string, data []byte, nodes *nodes) (content, error) {
	r := &reading{name: name, nodes: nodes, left: map[string]int{}}
	if isCalico(data) {
		r.export(bytes.Split(data, separator))
	} else {
		r.dump(data)
	}
	c := content{ready: true, nodes: nodes}
	var judges []model.Entry // of pools and peers: the others, and the blocks
	judge := func(r record) {
		judges = append(judges, model.Entry{Path: r.key.Path(), Key: r.key, Value: r.value, Revision: 1})
	}
	for _, record := range r.records {
		judge(record)
	}
	for _, from := range r.resources {
		from.Metadata.ResourceVersion = "" // of another etcd
		switch spec := from.Spec.(type) {
		case *resource.Node:
			r.records = append(r.records, tunnels(from.Metadata.Name, spec)...)
		case *resource.FelixConfiguration:
			r.errs = append(r.errs, refused(from, *spec)...)
			if dropped := spec.DropUnknown(); len(dropped) > 0 {
				c.notes = append(c.notes, fmt.Sprintf("%s: %s has settings without effect here, which are left out: %s", from.Place(), from.Title(), strings.Join(dropped, ", ")))
			}
		}
		puts, err := resource.Alone(from)
		judged := from.Kind == "IPPool" || from.Kind == "BGPPeer"
		if kind, _ := resource.Find(from.Kind); err == nil && judged {
			_, _, err = kind.Write(kind.DeleteRanges(), judges, from, resource.Create)
		}
		if err != nil {
			r.errs = append(r.errs, err)
			continue
		}
		for _, put := range puts {
			record, err := recordOf(model.Entry{Key: put.Key, Value: put.Value})
			if err != nil {
				r.fail("%s: %w", from.Title(), err)
			}
			if r.records = append(r.records, record); judged {
				judge(record)
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(r.left)) {
		c.notes = append(c.notes, fmt.Sprintf("left out: %d of %s", r.left[what], what))
	}
	c.records = r.records
	return c, problems(r.errs)
}

func (r *reading) export(parts [][]byte) {
	r.decode(r.name, parts[0])
	r.clusterInformation(parts[1])
	var ipam calicoIPAM
	if err := json.Unmarshal(parts[2], &ipam); err != nil {
		r.fail("its addresses: %w", plain(err))
	}
	if ipam.Config != nil {
		ipam.Handles = append(ipam.Handles, *ipam.Config)
	}
	for _, pairs := range [][]calicoPair{ipam.Blocks, ipam.Affinities, ipam.Handles} {
		for _, p := range pairs {
			var path string
			if err := json.Unmarshal(p.Key, &path); err != nil {
				r.fail("a key of its addresses: %w", plain(err))
				continue
			}
			r.record(path, p.Value)
		}
	}
}

// Where Calico keeps resources in etcd.
const (
	resourcesRoot = "/calico/resources/v3/projectcalico.org/"
	addressesRoot = "/calico/ipam/v2/"
)

func (r *reading) dump(data []byte) {
	var dump etcdDump
	if err := json.Unmarshal(data, &dump); err != nil {
		r.fail("%w", plain(err))
	}
	for _, pair := range dump.Pairs {
		switch key := string(pair.Key); {
		case strings.HasPrefix(key, resourcesRoot+"clusterinformations/"):
			r.clusterInformation(pair.Value)
		case strings.HasPrefix(key, resourcesRoot):
			r.decode(r.name+": "+key, pair.Value)
			r.orchestrated(pair.Value)
		case strings.HasPrefix(key, addressesRoot):
			r.record(key, pair.Value)
		default:
			r.left["keys besides resources and addresses: what runs writes them again"]++
		}
	}
}

// orchestrated takes the name that Kubernetes has for a node in place of that in etcd, as Calico's export does.
func (r *reading) orchestrated(data []byte) {
	var node struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			OrchRefs []struct{ NodeName, Orchestrator string }
		}
	}
	if json.Unmarshal(data, &node) != nil || node.Kind != "Node" {
		return
	}
	for _, ref := range node.Spec.OrchRefs {
		if _, said := r.nodes.to[node.Metadata.Name]; ref.Orchestrator == "k8s" && ref.NodeName != "" && !said {
			r.nodes.to[node.Metadata.Name] = ref.NodeName
		}
	}
}

func (r *reading) clusterInformation(data []byte) {
	var info struct {
		Spec struct {
			ClusterGUID string `json:"clusterGUID"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(data, &info); err != nil {
		r.fail("its ClusterInformation: %w", plain(err))
	} else if guid := info.Spec.ClusterGUID; guid != "" {
		r.records = append(r.records, record{model.GlobalConfigKey{Name: "ClusterGUID"}, model.Text(guid), guid})
	}
}

func (r *reading) record(path string, value []byte) {
	record, err := newRecord(path, value)
	if err != nil {
		r.fail("%w", err)
		return
	}
	r.records = append(r.records, record)
}

// decode takes resources, but what isn't supported, and what other programs write again.
func (r *reading) decode(file string, data []byte) {
	all, left, err := resource.DecodeSupported(file, data)
	if err != nil {
		r.errs = append(r.errs, err)
	}
	for _, l := range left {
		r.left[l.Error()]++
	}
	for _, from := range all {
		name := &from.Metadata.Name
		switch spec := from.Spec.(type) {
		case *resource.Policy:
			if file != r.name { // in etcd, policies of the tier default are named after it
				*name = strings.TrimPrefix(*name, model.DefaultTier+".")
			}
			if model.KubernetesPolicy(*name) {
				r.left[from.Kind+": calico-controllers writes those of Kubernetes' own policies"]++
				continue
			}
		case *resource.Profile:
			if strings.HasPrefix(*name, "kns.") || strings.HasPrefix(*name, "ksa.") {
				r.left["Profile: calico-controllers writes those of namespaces and service accounts"]++
				continue
			}
		case *resource.KubeControllersConfiguration: // with the Kubernetes API as its datastore, Calico runs fewer, and here policy needs them
			r.left["KubeControllersConfiguration: it says which of Calico's controllers run: apply one that says which of these do"]++
			continue
		case *resource.WorkloadEndpoint:
			if spec.Orchestrator == "k8s" || spec.Orchestrator == "cni" {
				r.left["WorkloadEndpoint: each agent enters its living pods again"]++
				continue
			}
		}
		r.resources = append(r.resources, from)
	}
}

// tunnels moves the addresses of a host's tunnels from its resource, which may not set them, to records.
func tunnels(host string, node *resource.Node) (records []record) {
	take := func(name string, from **resource.Address) {
		if *from != nil {
			text := (*from).String()
			records = append(records, record{model.HostConfigKey{Host: host, Name: name}, model.Text(text), text})
			*from = nil
		}
	}
	if node.BGP != nil {
		take("IpInIpTunnelAddr", &node.BGP.IPv4IPIPTunnelAddr)
	}
	take("IPv4VXLANTunnelAddr", &node.IPv4VXLANTunnelAddr)
	take("IPv6VXLANTunnelAddr", &node.IPv6VXLANTunnelAddr)
	return records
}

// refused returns an error for each setting of Calico's agent that decides what may pass, or whether it is encrypted, and
// isn't supported here. A setting is refused unless it has the value in off.
func refused(r resource.Resource, spec resource.FelixConfiguration) (errs []error) {
	off := map[string]string{"bpfEnabled": "false", "wireguardEnabled": "false", "wireguardEnabledV6": "false", "workloadSourceSpoofing": "Disabled",
		"allowVXLANPacketsFromWorkloads": "false", "allowIPIPPacketsFromWorkloads": "false"}
	for _, field := range slices.Sorted(maps.Keys(off)) {
		if value, ok := spec[field]; ok && string(value) != off[field] {
			errs = append(errs, fmt.Errorf("%s: %s: spec.%s: %s is not supported: take it out of the file, if the cluster can do without it", r.Place(), r.Title(), field, value))
		}
	}
	return errs
}
