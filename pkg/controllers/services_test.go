// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package controllers_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
	"github.com/calico-go/calico/pkg/model"
)

// TestServices: etcd has what those Services lead to that rules name, as long as they do.
func TestServices(t *testing.T) {
	w := newWorld(t)
	slice := func(name, addr string, port int) {
		w.plane.Apply(fmt.Sprintf(`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: %s, namespace: default, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, endpoints: [{addresses: [%s]}], ports: [{name: a, protocol: TCP, port: %d}]}`, name, addr, port))
	}
	leads := func(what string, want ...model.ServiceEndpoints) {
		t.Helper()
		eventually.Within(t, kubernetes.Patience, what, func() error {
			s, _ := w.Get(model.ServiceKey{Name: "default/web"}).(model.Service)
			if diff := cmp.Diff(want, s.Endpoints, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				return fmt.Errorf("-want +got:\n%s", diff)
			}
			return nil
		})
	}
	of := func(addr string, port uint16) model.ServiceEndpoints {
		return model.ServiceEndpoints{
			Nets:  []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(addr), 32)},
			Ports: []model.EndpointPort{{Name: "svc.default.web", Protocol: model.ProtocolTCP, Port: port}},
		}
	}
	rules := func(port string) model.Policy {
		return model.Policy{Selector: "all()", Outbound: []model.Rule{{Action: model.ActionAllow, Match: model.Match{DstPorts: []model.Port{{Name: port}}}}}}
	}
	policy := model.PolicyKey{Tier: model.DefaultTier, Policy: "a"}

	slice("web-1", "192.0.2.1", 8080)
	w.Put(policy, rules("svc.default.web"))
	stop := w.run("one")
	leads("what the service leads to", of("192.0.2.1", 8080))
	slice("web-2", "192.0.2.2", 9090)
	leads("another slice", of("192.0.2.1", 8080), of("192.0.2.2", 9090))
	w.plane.Kubectl("delete", "endpointslice", "web-1")
	leads("one slice", of("192.0.2.2", 9090))
	w.Put(model.ServiceKey{Name: "default/web"}, model.Service{})
	leads("what somebody else has overwritten", of("192.0.2.2", 9090))

	stop()
	slice("web-2", "192.0.2.3", 9090)
	w.Put(model.ServiceKey{Name: "default/old"}, model.Service{})
	w.run("two")
	leads("what has changed meanwhile", of("192.0.2.3", 9090))
	gone := func(name string) {
		t.Helper()
		eventually.Within(t, kubernetes.Patience, name+" to be gone", func() error {
			if s := w.Get(model.ServiceKey{Name: name}); s != nil {
				return fmt.Errorf("%v", s)
			}
			return nil
		})
	}
	gone("default/old")
	w.Put(policy, rules("svc.default.none"))
	gone("default/web")
}
