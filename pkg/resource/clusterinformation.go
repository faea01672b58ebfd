// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// ClusterInformation describes the cluster. Only DatastoreReady can be written.
type ClusterInformation struct {
	ClusterGUID    string `json:"clusterGUID,omitempty" doc:"Names the cluster. Read-only."`
	ClusterType    string `json:"clusterType,omitempty" doc:"Read-only."`
	CalicoVersion  string `json:"calicoVersion,omitempty" doc:"Read-only."`
	Variant        string `json:"variant,omitempty" only:"Calico" refused:"there is no other"`
	DatastoreReady *bool  `json:"datastoreReady,omitempty" doc:"False has plugins and agents change nothing: see calicoctl datastore lock."`
}

var clusterInformationKind = newKind(readClusterInformation, writeClusterInformation, Kind{
	Name: "ClusterInformation", Plural: "ClusterInformations", apart: true, Aliases: []string{"clusterinfo", "clusterinfos"},
	ranges: append(keyRanges(model.ReadyKey{}), model.PrefixRange(model.ConfigPrefix())), of: ofClusterInformation,
	mayDelete: func(Stored, []model.Entry) error { return errors.New("it is always there") },
	custom: &custom{columns: []string{"Ready", "datastoreReady"}, rules: append(slices.Clone(onlyDefault), Validation{
		"!has(self.spec.datastoreReady) || self.spec.datastoreReady", "spec.datastoreReady: whoever carries this into etcd writes nothing there while it is false: use calicoctl datastore lock",
	})},
	Columns: []Column{
		cell("CLUSTERGUID", false, func(c *ClusterInformation) string { return c.ClusterGUID }),
		cell("READY", false, func(c *ClusterInformation) string { return fmt.Sprint(orZero(c.DatastoreReady)) }),
	},
})

// setting returns the field that holds a cluster setting, nil if none does.
func (c *ClusterInformation) setting(key model.Key) *string {
	return map[model.Key]*string{
		model.GlobalConfigKey{Name: "ClusterGUID"}: &c.ClusterGUID, model.GlobalConfigKey{Name: "ClusterType"}: &c.ClusterType,
		model.GlobalConfigKey{Name: "CalicoVersion"}: &c.CalicoVersion,
	}[key]
}

func ofClusterInformation(e model.Entry) string {
	if e.Key == (model.ReadyKey{}) || new(ClusterInformation).setting(e.Key) != nil {
		return "default"
	}
	return ""
}

func readClusterInformation(name string, s *Stored) *ClusterInformation {
	spec := &ClusterInformation{}
	s.Metadata.Name = name
	for _, e := range s.Entries {
		if ready, ok := parsed[model.Ready](e); ok {
			spec.DatastoreReady = new(bool(ready))
		}
		if text, ok := parsed[model.Text](e); ok {
			*spec.setting(e.Key) = string(text)
		}
	}
	return spec
}

func writeClusterInformation(r writing[ClusterInformation]) (keys, error) {
	spec, was := r.spec, r.was
	switch {
	case r.Metadata.Name != "default":
		return keys{}, r.at("metadata.name", "%q: want default", r.Metadata.Name)
	case !r.alone && (spec.ClusterGUID != was.ClusterGUID || spec.ClusterType != was.ClusterType || spec.CalicoVersion != was.CalicoVersion):
		return keys{}, r.at("spec", "only datastoreReady can be written")
	case spec.DatastoreReady == nil:
		return keys{}, r.at("spec.datastoreReady", "missing: want true or false")
	}
	return put(model.ReadyKey{}, model.Ready(*spec.DatastoreReady)), nil
}
