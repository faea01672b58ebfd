// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/calico-go/calico/pkg/model"
)

// fields are those of a part of a document, by their JSON names.
type fields = map[string]any

// An Older is a resource as apiVersion v1 has it.
type Older struct {
	Document any
	Lost     []string // fields that v1 has no word for
	shown    Resource // what the document means
}

// olderForms turn the metadata and spec of a kind's resource into those of apiVersion v1, but for what v1 has no word for.
var olderForms = map[string]struct {
	name string // of the kind
	turn func(r Resource, metadata, spec fields)
}{
	"IPPool": {"ipPool", func(r Resource, metadata, spec fields) {
		pool := specOf[IPPool](r)
		metadata["cidr"] = pool.CIDR
		if pool.IPIPMode != Never {
			mode := map[Encapsulation]string{Always: "always", CrossSubnet: "cross-subnet"}[pool.IPIPMode]
			spec["ipip"] = fields{"enabled": true, "mode": mode}
		}
		if pool.NATOutgoing {
			spec["nat-outgoing"] = true
		}
		if pool.NodeSelector == "all()" {
			delete(spec, "nodeSelector")
		}
		drop(spec, "cidr", "ipipMode", "natOutgoing")
		unname(metadata, model.Pool{CIDR: pool.CIDR.Prefix}.ResourceName())
	}},
	"GlobalNetworkPolicy": {"policy", func(r Resource, metadata, spec fields) {
		p := *specOf[Policy](r)
		m, _ := r.policy(&p, "") // what etcd holds compiles
		drop(spec, "namespaceSelector", "serviceAccountSelector", "tier")
		if spec["selector"] = m.Selector; p.Tier != model.DefaultTier {
			metadata["tier"] = p.Tier
		}
		types, _ := spec["types"].([]any)
		for i := range types {
			types[i] = strings.ToLower(types[i].(string))
		}
	}},
	"Profile": {"profile", func(_ Resource, metadata, spec fields) {
		move(spec, "labelsToApply", metadata, "labels")
		move(spec, "tags", metadata, "tags")
	}},
	"HostEndpoint": {"hostEndpoint", func(_ Resource, metadata, spec fields) { move(spec, "node", metadata, "node") }},
	"WorkloadEndpoint": {"workloadEndpoint", func(_ Resource, metadata, spec fields) {
		for from, to := range map[string]string{"endpoint": "name", "workload": "workload", "orchestrator": "orchestrator", "node": "node", "containerID": "activeInstanceID"} {
			move(spec, from, metadata, to)
		}
		drop(spec, "pod") // it is in the workload's name
	}},
	"BGPPeer": {"bgpPeer", func(r Resource, metadata, spec fields) {
		peer := specOf[BGPPeer](r)
		metadata["scope"] = "global"
		if move(spec, "node", metadata, "node"); peer.Node != "" {
			metadata["scope"] = "node"
		}
		if move(spec, "peerIP", metadata, "peerIP"); peer.PeerIP != nil {
			unname(metadata, peerName(peer.Node, peer.PeerIP.Addr))
		}
	}},
	"Node": {"node", func(Resource, fields, fields) {}},
}

func drop(from fields, names ...string) {
	maps.DeleteFunc(from, func(name string, _ any) bool { return slices.Contains(names, name) })
}

func move(from fields, name string, to fields, as string) {
	if v, there := from[name]; there {
		delete(from, name)
		to[as] = v
	}
}

// unname removes the name that a resource without a name has.
func unname(metadata fields, name string) {
	if metadata["name"] == name {
		delete(metadata, "name")
	}
}

// lower puts words into the case that v1 has them in.
func lower(in fields, names ...string) {
	for _, name := range names {
		if word, is := in[name].(string); is {
			in[name] = strings.ToLower(word)
		}
	}
}

// MayOlder returns an error if apiVersion v1 doesn't have the kind.
func (k *Kind) MayOlder() error {
	if _, ok := olderForms[k.Name]; !ok {
		return fmt.Errorf("v1 has no kind %s: it has %s", k.Name, strings.Join(slices.Sorted(maps.Keys(olderForms)), ", "))
	}
	return nil
}

// Older returns the resource as a document of apiVersion v1. The kind must be one of v1's.
func (r Resource) Older() (o Older, err error) {
	if p, is := r.Spec.(*BGPPeer); is && p.NodeSelector+p.PeerSelector != "" {
		return o, errors.New("v1 has no peers by selector")
	}
	form := olderForms[r.Kind]
	kind := olderKinds[strings.ToLower(form.name)]
	var parts struct{ Metadata, Spec fields }
	data, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(data, &parts)
	}
	if err != nil {
		return o, err
	}
	metadata, spec := parts.Metadata, parts.Spec
	drop(metadata, "namespace", "resourceVersion", "uid", "creationTimestamp")
	form.turn(r, metadata, spec)
	only := func(in fields, at string, names []string) {
		for name := range in {
			if !slices.Contains(names, name) {
				delete(in, name)
				o.Lost = append(o.Lost, at+"."+name)
			}
		}
	}
	only(metadata, "metadata", kind.metadata)
	only(spec, "spec", kind.spec)
	for field, rules := range rulesIn(r.Spec) {
		for i, rule := range rules {
			in, at := spec[field].([]any)[i].(fields), "spec."+field+"["+strconv.Itoa(i)+"]"
			for name, e := range map[string]*EntityRule{"source": rule.Source, "destination": rule.Destination} {
				if e == nil {
					continue
				}
				side := in[name].(fields)
				drop(side, "namespaceSelector", "serviceAccounts")
				if text, has, _ := e.pick("").compile(""); has { // as above
					side["selector"] = text
				}
				only(side, at+"."+name, fieldNames(reflect.TypeFor[olderEntity]()))
			}
			only(in, at, fieldNames(reflect.TypeFor[olderRule]()))
			lower(in, "action", "protocol", "notProtocol")
		}
	}
	slices.Sort(o.Lost)
	o.Document = fields{"apiVersion": "v1", "kind": form.name, "metadata": metadata, "spec": spec}
	if data, err = json.Marshal(o.Document); err != nil {
		return o, err
	}
	all, err := Decode("", data)
	if err != nil {
		return o, errors.New("v1 can't say it: " + strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	o.shown = all[0]
	return o, nil
}

func rulesIn(spec any) map[string][]Rule {
	switch s := spec.(type) {
	case *Policy:
		return map[string][]Rule{"ingress": s.Ingress, "egress": s.Egress}
	case *Profile:
		return map[string][]Rule{"ingress": s.Ingress, "egress": s.Egress}
	}
	return nil
}

// over returns what a document of v1 makes of a stored resource: what v1 has no word for, and what the document says as v1 shows it, stays.
func (r Resource) over(old Resource) (Resource, error) {
	was, err := old.Older()
	if err != nil {
		return r, nil // it can't be what is meant
	}
	var texts [2][]byte
	for i, v := range []Resource{was.shown, r} {
		v.Metadata.Name, v.Metadata.Namespace, v.Metadata.ResourceVersion = old.Metadata.Name, old.Metadata.Namespace, ""
		if texts[i], err = json.Marshal(v); err != nil {
			return r, err
		}
	}
	patch, err := jsonpatch.CreateMergePatch(texts[0], texts[1])
	if err != nil {
		return r, err
	}
	result, err := Patched(old, patch)
	if err == nil {
		r.Spec, r.Metadata = result.Spec, result.Metadata
		r.Metadata.ResourceVersion = ""
	}
	return r, err
}

// Of finds the stored resource that a document is about: that of its name, or, where v1 names by less than that, the one that v1 shows so.
func (k *Kind) Of(entries []model.Entry, r Resource) (*Stored, error) {
	all := k.All(entries)
	if r.By.UID != "" && k.perNode { // an object has its own, wherever that is, or what is on its node
		all = slices.DeleteFunc(all, func(s Stored) bool {
			return s.Metadata.Name == r.Metadata.Name && s.Metadata.UID != r.By.UID && nodeOf(s.Resource) != nodeOf(r)
		})
	}
	s, err := k.Lookup(all, r.Metadata.Namespace, r.Metadata.Name)
	nameless := k.Name == "IPPool" || k.Name == "BGPPeer" || k.Name == "WorkloadEndpoint" // in v1
	if _, missing := errors.AsType[*NotFoundError](err); missing && r.older && nameless {
		for i := range all {
			if all[i].Err != nil {
				continue
			}
			if o, wrong := all[i].Older(); wrong == nil && o.shown.ID() == r.ID() {
				return &all[i], nil
			}
		}
	}
	return s, err
}
