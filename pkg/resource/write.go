// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// A Mode says what may be there before a resource is written.
type Mode int

// The modes of Write.
const (
	Apply   Mode = iota // there or not
	Create              // not there
	Replace             // there
)

// Write decides how what was read in the kind's Ranges becomes the resource. The change is empty where it says what is
// stored already. created says that it is new. The error may be a *model.NeedRangesError. The ranges are those that entries are of.
func (k *Kind) Write(ranges []model.Range, entries []model.Entry, r Resource, mode Mode) (change model.Change, created bool, err error) {
	old, err := k.Lookup(k.Read(entries), r.Metadata.Namespace, r.Metadata.Name)
	if k.narrow != nil && k.beside != "" {
		keys := model.Range{Prefix: k.beside, KeysOnly: true}
		switch {
		case err != nil && !slices.Contains(ranges, keys) && !slices.Contains(ranges, model.PrefixRange(k.beside)):
			return change, false, &model.NeedRangesError{Ranges: []model.Range{keys}}
		case err == nil && old.Entries[0].Value == nil && old.Entries[0].Err == nil:
			return change, false, &model.NeedRangesError{Ranges: []model.Range{model.KeyRange(old.Entries[0].Key)}}
		}
	}
	var missing *NotFoundError
	switch {
	case errors.As(err, &missing):
		if mode == Replace || r.Metadata.ResourceVersion != "" && r.Metadata.ResourceVersion != "0" && mode == Apply {
			return change, false, err
		}
		old = nil
	case err != nil:
		return change, false, err
	case mode == Create:
		return change, false, &ExistsError{k.Name, r.ID()}
	default:
		if err := stale(*old, r.Metadata.ResourceVersion); err != nil {
			return change, false, err
		}
		if r.Metadata.Name != old.Metadata.Name {
			r.Metadata.Name = old.Metadata.Name // one of its other names
		}
		if old.Err == nil && equal(r, old.Resource) {
			return change, false, nil
		}
	}
	written, err := k.write(r, old, entries)
	if err != nil {
		return change, false, err
	}
	change, err = r.change(written, entries)
	return change, old == nil, err
}

func stale(s Stored, read string) error {
	if read != "" && read != s.Metadata.ResourceVersion {
		return &StaleError{s.Title(), read, s.Metadata.ResourceVersion}
	}
	return nil
}

// change writes what differs from what is stored, if all keys that it looked at are as they were read.
func (r Resource) change(written keys, entries []model.Entry) (model.Change, error) {
	stored := map[model.Key]model.Entry{}
	for _, e := range entries {
		if e.Key != nil {
			stored[e.Key] = e
		}
	}
	var change model.Change
	for _, put := range written.puts {
		text, err := model.FormatValue(put.Value)
		if err != nil {
			return change, r.modelError(err)
		}
		e := stored[put.Key]
		change.Compares = append(change.Compares, model.Compare{Key: put.Key, Revision: e.Revision})
		if e.Exists() && e.Err == nil {
			if e.Unknown != nil {
				return change, fmt.Errorf("%s: %s has fields that this version would lose: %w; use the version that wrote them", r.Title(), e.Path, e.Unknown)
			}
			if was, err := model.FormatValue(e.Value); err == nil && string(was) == string(text) {
				continue
			}
		}
		change.Puts = append(change.Puts, put)
	}
	for _, key := range written.deletes {
		if e := stored[key]; e.Exists() {
			change.Compares = append(change.Compares, model.Compare{Key: key, Revision: e.Revision})
			change.Deletes = append(change.Deletes, key)
		}
	}
	return change, nil
}

// modelError puts an error of the model in the words of the resource.
func (r Resource) modelError(err error) error {
	var f *model.FieldError
	if !errors.As(err, &f) {
		return fmt.Errorf("%s: %w", r.Title(), err)
	}
	field := f.Field
	for _, word := range modelWords {
		field = strings.Replace(field, word[0], word[1], 1)
	}
	if r.Kind == "HostEndpoint" && field == "name" {
		field = "interfaceName"
	}
	return r.at("spec."+field, "%w", f.Err)
}

// modelWords are fields of the model and what they are in a resource.
var modelWords = [][2]string{
	{"inbound_rules", "ingress"}, {"outbound_rules", "egress"}, {"!src_", "source.not_"}, {"!dst_", "destination.not_"},
	{"src_", "source."}, {"dst_", "destination."}, {"not_nets", "notNets"}, {"not_ports", "notPorts"}, {"not_selector", "notSelector"},
	{"!icmp_", "notICMP."}, {"icmp_", "icmp."}, {"!protocol", "notProtocol"}, {"ip_version", "ipVersion"}, {"pre_dnat", "preDNAT"},
	{"block_size", "blockSize"}, {"node_selector", "nodeSelector"}, {"ipip", "ipipMode"}, {"vxlan_mode", "vxlanMode"},
	{"expected_ipv4_addrs", "expectedIPs"}, {"expected_ipv6_addrs", "expectedIPs"}, {"profile_ids", "profiles"}, {"as_num", "asNumber"},
	{"gateway_ip", "gatewayIP"}, {"dns_servers", "dnsServers"}, {"host_routes", "hostRoutes"}, {"ebgp_multihop", "ebgpMultihop"},
}

// Delete decides how a resource goes. All of its keys go in one transaction.
func (k *Kind) Delete(entries []model.Entry, namespace, name, resourceVersion string) (model.Change, error) {
	var change model.Change
	s, err := k.Lookup(k.Read(entries), namespace, name)
	if err != nil {
		return change, err
	}
	if err := stale(*s, resourceVersion); err != nil {
		return change, err
	}
	if k.mayDelete != nil {
		if err := k.mayDelete(*s, entries); err != nil {
			return change, fmt.Errorf("%s: %w", s.Title(), err)
		}
	}
	all := s.Entries
	if k.rest != nil {
		all = append(slices.Clone(all), k.rest(*s, entries)...)
	}
	for _, e := range all {
		change.Compares = append(change.Compares, model.Compare{Key: e.Key, Revision: e.Revision})
		change.Deletes = append(change.Deletes, e.Key)
	}
	return change, nil
}

// parsed gives the value of an entry, if it is of its type.
func parsed[V any](e model.Entry) (V, bool) {
	v, ok := e.Value.(V)
	return v, ok && e.Err == nil
}

// Check finds what is wrong with a resource by itself, without what is stored.
func Check(r Resource) error {
	k, err := Find(r.Kind)
	if err != nil {
		return err
	}
	var entries []model.Entry
	if p, ok := r.Spec.(*Policy); ok && p.Tier != "" { // which tiers there are is the cluster's
		key := model.TierKey{Tier: p.Tier}
		entries = append(entries, model.Entry{Path: key.Path(), Key: key, Value: model.Tier{}})
	}
	written, err := k.write(r, nil, entries)
	if err != nil {
		return err
	}
	_, err = r.change(written, nil)
	return err
}
