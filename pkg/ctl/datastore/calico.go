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

func parseCalico(name string, data []byte) (content, error) {
	parts := bytes.Split(data, separator)
	c := content{ready: true}
	var errs []error
	fail := func(err error) { errs = append(errs, fmt.Errorf("%s: %w", name, err)) }
	var err error
	if c.resources, err = resource.Decode(name, parts[0]); err != nil {
		errs = append(errs, err)
	}
	for i, r := range c.resources {
		c.resources[i].Metadata.ResourceVersion = "" // of another etcd
		switch spec := r.Spec.(type) {
		case *resource.Node:
			c.records = append(c.records, tunnels(r.Metadata.Name, spec)...)
		case *resource.FelixConfiguration:
			errs = append(errs, refused(r, *spec)...)
			if dropped := spec.DropUnknown(); len(dropped) > 0 {
				c.notes = append(c.notes, fmt.Sprintf("%s: %s has settings without effect here, which are left out: %s", r.Place(), r.Title(), strings.Join(dropped, ", ")))
			}
		}
		if err := resource.Check(r); err != nil {
			errs = append(errs, err)
		}
	}
	var info struct {
		Spec struct {
			ClusterGUID string `json:"clusterGUID"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(parts[1], &info); err != nil {
		fail(fmt.Errorf("its ClusterInformation: %w", plain(err)))
	} else if guid := info.Spec.ClusterGUID; guid != "" {
		c.records = append(c.records, record{model.GlobalConfigKey{Name: "ClusterGUID"}, model.Text(guid), guid})
	}
	var ipam calicoIPAM
	if err := json.Unmarshal(parts[2], &ipam); err != nil {
		fail(fmt.Errorf("its addresses: %w", plain(err)))
	}
	if ipam.Config != nil {
		ipam.Handles = append(ipam.Handles, *ipam.Config)
	}
	for _, pairs := range [][]calicoPair{ipam.Blocks, ipam.Affinities, ipam.Handles} {
		for _, p := range pairs {
			var path string
			if err := json.Unmarshal(p.Key, &path); err != nil {
				fail(fmt.Errorf("a key of its addresses: %w", plain(err)))
				continue
			}
			r, err := newRecord(path, p.Value)
			if err != nil {
				fail(err)
				continue
			}
			c.records = append(c.records, r)
		}
	}
	return c, problems(errs)
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
