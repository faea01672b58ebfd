// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"errors"
	"fmt"

	"github.com/calico-go/calico/pkg/client"
	"github.com/calico-go/calico/pkg/resource"
)

// meant is the workload endpoint of the pod, or workload, of a name, where the namespace has one alone, which it notes; else the error that
// there is nothing of the name, with what it may have meant.
func (g *get) meant(ctx context.Context, c *client.Client, kind *resource.Kind, namespace, name string, missing error) (*resource.Stored, error) {
	if !errors.As(missing, new(*resource.NotFoundError)) {
		return nil, missing
	}
	all, _, err := c.List(ctx, kind, "")
	if err != nil {
		return nil, missing
	}
	var ofPod []resource.Stored
	var names []string
	for _, s := range all {
		w, _ := s.Spec.(*resource.WorkloadEndpoint)
		switch {
		case s.Metadata.Namespace != namespace && w != nil && w.Pod != "":
			names = append(names, w.Pod+" -n "+s.Metadata.Namespace)
		case s.Metadata.Namespace != namespace:
			names = append(names, s.Metadata.Name+" -n "+s.Metadata.Namespace)
		default:
			if names = append(names, s.Metadata.Name); w != nil && (w.Pod == name || w.Workload == name) {
				ofPod = append(ofPod, s)
			}
		}
	}
	if len(ofPod) == 1 {
		fmt.Fprintf(g.env.Stderr, "calicoctl: note: there is no %s %s: this is %s\n", kind.Name, name, ofPod[0].Metadata.Name)
		return &ofPod[0], nil
	}
	return nil, fmt.Errorf("%w%s", missing, resource.DidYouMean(name, names))
}
