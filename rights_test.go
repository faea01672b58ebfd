// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// rights are all that the manifests let Calico's accounts do, each role's by itself: verbs, resource, and the objects where
// it isn't all. Whoever has an account's token has its rights: one that is new here needs a reason, and names objects where it can.
const rights = `
calico-etcd.yaml ClusterRole calico-admin: create,update,delete projectcalico.org/tier.networkpolicies,projectcalico.org/tier.globalnetworkpolicies default.*
calico-etcd.yaml ClusterRole calico-admin: get,list,watch,create,update,patch,delete,deletecollection projectcalico.org/bgpconfigurations,projectcalico.org/bgpfilters,projectcalico.org/bgppeers,projectcalico.org/caliconodestatuses,projectcalico.org/clusterinformations,projectcalico.org/dhcpsubnets,projectcalico.org/felixconfigurations,projectcalico.org/globalnetworkpolicies,projectcalico.org/globalnetworksets,projectcalico.org/hostendpoints,projectcalico.org/ipamconfigurations,projectcalico.org/ippools,projectcalico.org/ipreservations,projectcalico.org/kubecontrollersconfigurations,projectcalico.org/networkpolicies,projectcalico.org/networksets,projectcalico.org/tiers
calico-etcd.yaml ClusterRole calico-controllers: create,patch events
calico-etcd.yaml ClusterRole calico-controllers: get apiextensions.k8s.io/customresourcedefinitions
calico-etcd.yaml ClusterRole calico-controllers: get,list,watch namespaces,serviceaccounts,pods,nodes
calico-etcd.yaml ClusterRole calico-controllers: get,list,watch networking.k8s.io/networkpolicies
calico-etcd.yaml ClusterRole calico-controllers: get,list,watch policy.networking.k8s.io/clusternetworkpolicies
calico-etcd.yaml ClusterRole calico-controllers: get,list,watch projectcalico.org/bgpconfigurations,projectcalico.org/bgpfilters,projectcalico.org/bgppeers,projectcalico.org/clusterinformations,projectcalico.org/dhcpsubnets,projectcalico.org/felixconfigurations,projectcalico.org/globalnetworkpolicies,projectcalico.org/globalnetworksets,projectcalico.org/hostendpoints,projectcalico.org/ipamconfigurations,projectcalico.org/ippools,projectcalico.org/ipreservations,projectcalico.org/kubecontrollersconfigurations,projectcalico.org/networkpolicies,projectcalico.org/networksets,projectcalico.org/tiers
calico-etcd.yaml ClusterRole calico-controllers: list,watch discovery.k8s.io/endpointslices
calico-etcd.yaml ClusterRole calico-controllers: list,watch policy.networking.k8s.io/adminnetworkpolicies,policy.networking.k8s.io/baselineadminnetworkpolicies
calico-etcd.yaml ClusterRole calico-controllers: patch namespaces/status
calico-etcd.yaml ClusterRole calico-controllers: patch nodes/status
calico-etcd.yaml ClusterRole calico-controllers: patch policy.networking.k8s.io/clusternetworkpolicies/status
calico-etcd.yaml ClusterRole calico-controllers: patch projectcalico.org/bgpconfigurations/status,projectcalico.org/bgpfilters/status,projectcalico.org/bgppeers/status,projectcalico.org/clusterinformations/status,projectcalico.org/dhcpsubnets/status,projectcalico.org/felixconfigurations/status,projectcalico.org/globalnetworkpolicies/status,projectcalico.org/globalnetworksets/status,projectcalico.org/hostendpoints/status,projectcalico.org/ipamconfigurations/status,projectcalico.org/ippools/status,projectcalico.org/ipreservations/status,projectcalico.org/kubecontrollersconfigurations/status,projectcalico.org/networkpolicies/status,projectcalico.org/networksets/status,projectcalico.org/tiers/status
calico-etcd.yaml ClusterRole calico-node: create,patch events
calico-etcd.yaml ClusterRole calico-node: get,list,watch pods,namespaces
calico-etcd.yaml ClusterRole calico-node: list,watch nodes
calico-etcd.yaml ClusterRole calico-node: list,watch projectcalico.org/caliconodestatuses
calico-etcd.yaml ClusterRole calico-node: patch nodes/status
calico-etcd.yaml ClusterRole calico-node: patch projectcalico.org/caliconodestatuses/status
calico-etcd.yaml ClusterRole calico-view: get,list,watch projectcalico.org/*
calico-etcd.yaml Role calico-bootstrap: get configmaps kubeadm-config
calico-etcd.yaml Role calico-controllers: create coordination.k8s.io/leases
calico-etcd.yaml Role calico-controllers: get apps/daemonsets calico-node
calico-etcd.yaml Role calico-controllers: get,update coordination.k8s.io/leases calico-controllers
calico-nsm.yaml ClusterRole calico-nsm-signer: approve,sign certificates.k8s.io/signers projectcalico.org/nsm
calico-nsm.yaml ClusterRole calico-nsm-signer: get nodes
calico-nsm.yaml ClusterRole calico-nsm-signer: get,list,watch certificates.k8s.io/certificatesigningrequests
calico-nsm.yaml ClusterRole calico-nsm-signer: patch certificates.k8s.io/certificatesigningrequests/approval,certificates.k8s.io/certificatesigningrequests/status
calico-nsm.yaml ClusterRole calico-nsm: create,get certificates.k8s.io/certificatesigningrequests
calico-nsm.yaml ClusterRole calico-nsm: get,list nodes
calico-nsm.yaml Role calico-nsm-signer: get pods
calico-nsm.yaml Role calico-nsm-signer: get,update configmaps calico-nsm
calico-nsm.yaml Role calico-nsm-signer: get,update secrets calico-nsm-ca
calico-nsm.yaml Role calico-nsm: list,create,patch coordination.k8s.io/leases
calico-nsm.yaml Role calico-nsm: list,watch,create networkservicemesh.io/networkservices
calico-nsm.yaml Role calico-nsm: list,watch,create,patch,delete networkservicemesh.io/networkserviceendpoints
calico.yaml ClusterRole calico-admin: create,update,delete projectcalico.org/tier.networkpolicies,projectcalico.org/tier.globalnetworkpolicies default.*
calico.yaml ClusterRole calico-admin: get,list,watch,create,update,patch,delete,deletecollection projectcalico.org/bgpconfigurations,projectcalico.org/bgpfilters,projectcalico.org/bgppeers,projectcalico.org/caliconodestatuses,projectcalico.org/clusterinformations,projectcalico.org/dhcpsubnets,projectcalico.org/felixconfigurations,projectcalico.org/globalnetworkpolicies,projectcalico.org/globalnetworksets,projectcalico.org/hostendpoints,projectcalico.org/ipamconfigurations,projectcalico.org/ippools,projectcalico.org/ipreservations,projectcalico.org/kubecontrollersconfigurations,projectcalico.org/networkpolicies,projectcalico.org/networksets,projectcalico.org/tiers
calico.yaml ClusterRole calico-bootstrap: approve,sign certificates.k8s.io/signers projectcalico.org/etcd-node
calico.yaml ClusterRole calico-bootstrap: get,list nodes
calico.yaml ClusterRole calico-bootstrap: get,list,watch certificates.k8s.io/certificatesigningrequests
calico.yaml ClusterRole calico-bootstrap: patch certificates.k8s.io/certificatesigningrequests/approval,certificates.k8s.io/certificatesigningrequests/status
calico.yaml ClusterRole calico-controllers: create,patch events
calico.yaml ClusterRole calico-controllers: get apiextensions.k8s.io/customresourcedefinitions
calico.yaml ClusterRole calico-controllers: get,list,watch namespaces,serviceaccounts,pods,nodes
calico.yaml ClusterRole calico-controllers: get,list,watch networking.k8s.io/networkpolicies
calico.yaml ClusterRole calico-controllers: get,list,watch policy.networking.k8s.io/clusternetworkpolicies
calico.yaml ClusterRole calico-controllers: get,list,watch projectcalico.org/bgpconfigurations,projectcalico.org/bgpfilters,projectcalico.org/bgppeers,projectcalico.org/clusterinformations,projectcalico.org/dhcpsubnets,projectcalico.org/felixconfigurations,projectcalico.org/globalnetworkpolicies,projectcalico.org/globalnetworksets,projectcalico.org/hostendpoints,projectcalico.org/ipamconfigurations,projectcalico.org/ippools,projectcalico.org/ipreservations,projectcalico.org/kubecontrollersconfigurations,projectcalico.org/networkpolicies,projectcalico.org/networksets,projectcalico.org/tiers
calico.yaml ClusterRole calico-controllers: list,watch discovery.k8s.io/endpointslices
calico.yaml ClusterRole calico-controllers: list,watch policy.networking.k8s.io/adminnetworkpolicies,policy.networking.k8s.io/baselineadminnetworkpolicies
calico.yaml ClusterRole calico-controllers: patch namespaces/status
calico.yaml ClusterRole calico-controllers: patch nodes/status
calico.yaml ClusterRole calico-controllers: patch policy.networking.k8s.io/clusternetworkpolicies/status
calico.yaml ClusterRole calico-controllers: patch projectcalico.org/bgpconfigurations/status,projectcalico.org/bgpfilters/status,projectcalico.org/bgppeers/status,projectcalico.org/clusterinformations/status,projectcalico.org/dhcpsubnets/status,projectcalico.org/felixconfigurations/status,projectcalico.org/globalnetworkpolicies/status,projectcalico.org/globalnetworksets/status,projectcalico.org/hostendpoints/status,projectcalico.org/ipamconfigurations/status,projectcalico.org/ippools/status,projectcalico.org/ipreservations/status,projectcalico.org/kubecontrollersconfigurations/status,projectcalico.org/networkpolicies/status,projectcalico.org/networksets/status,projectcalico.org/tiers/status
calico.yaml ClusterRole calico-node-etcd: create,get certificates.k8s.io/certificatesigningrequests
calico.yaml ClusterRole calico-node: create,patch events
calico.yaml ClusterRole calico-node: get,list,watch pods,namespaces
calico.yaml ClusterRole calico-node: list,watch nodes
calico.yaml ClusterRole calico-node: list,watch projectcalico.org/caliconodestatuses
calico.yaml ClusterRole calico-node: patch nodes/status
calico.yaml ClusterRole calico-node: patch projectcalico.org/caliconodestatuses/status
calico.yaml ClusterRole calico-view: get,list,watch projectcalico.org/*
calico.yaml Role calico-bootstrap-etcd: get pods
calico.yaml Role calico-bootstrap-etcd: get,update configmaps calico-etcd
calico.yaml Role calico-bootstrap-etcd: get,update secrets calico-etcd-ca,calico-etcd-server,calico-etcd-controllers,calico-etcd-ctl
calico.yaml Role calico-bootstrap: get configmaps kubeadm-config
calico.yaml Role calico-controllers: create coordination.k8s.io/leases
calico.yaml Role calico-controllers: get apps/daemonsets calico-node
calico.yaml Role calico-controllers: get,update coordination.k8s.io/leases calico-controllers
`

// A manifestObject is what the tests here ask of an object of the manifests.
type manifestObject struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]any
	Type     string
	Rules    []struct {
		APIGroups, Resources, ResourceNames, NonResourceURLs, Verbs []string
	}
	RoleRef  struct{ Kind, Name string }
	Subjects []struct{ Kind, Name, Namespace string }
}

// manifestObjects are those of a file that users apply.
func manifestObjects(t *testing.T, file string) (all []manifestObject) {
	t.Helper()
	for text := range strings.SplitSeq(readText(t, "k8s-manifests/"+file), "\n---\n") {
		var o manifestObject
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, text)
		}
		all = append(all, o)
	}
	return all
}

func TestRights(t *testing.T) {
	var got []string
	for _, file := range []string{"calico.yaml", "calico-etcd.yaml", "calico-nsm.yaml", "calico-uninstall.yaml"} {
		for _, o := range manifestObjects(t, file) {
			for _, r := range o.Rules {
				var resources []string
				for _, group := range r.APIGroups {
					for _, resource := range r.Resources {
						resources = append(resources, strings.TrimPrefix(group+"/"+resource, "/"))
					}
				}
				resources = append(resources, r.NonResourceURLs...)
				got = append(got, strings.TrimSpace(file+" "+o.Kind+" "+o.Metadata.Name+": "+strings.Join(r.Verbs, ",")+" "+
					strings.Join(resources, ",")+" "+strings.Join(r.ResourceNames, ",")))
			}
			// An account has its own roles, and none of the cluster's.
			for _, s := range o.Subjects {
				if s.Kind != "ServiceAccount" || s.Namespace != "kube-system" || strings.TrimSuffix(o.RoleRef.Name, "-etcd") != s.Name {
					t.Errorf("%s: %s %s gives %s %s to %s %s/%s", file, o.Kind, o.Metadata.Name, o.RoleRef.Kind, o.RoleRef.Name, s.Kind, s.Namespace, s.Name)
				}
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(rights), "\n"), got); diff != "" {
		t.Errorf("rights of the manifests' roles (-want +got):\n%s", diff)
	}
}

// TestFilledByBootstrap: what bootstrap may write is made without data: an apply never takes back what was filled in.
func TestFilledByBootstrap(t *testing.T) {
	filled(t, "calico.yaml", "calico-bootstrap", "calico-etcd", 5)
	filled(t, "calico-nsm.yaml", "calico-nsm-signer", "calico-nsm", 2)
}

// filled looks at a file's objects without data, so many, of which that of an authority and the ConfigMap last.
func filled(t *testing.T, file, account, what string, want int) {
	t.Helper()
	empty := map[string]bool{}
	for _, o := range manifestObjects(t, file) {
		if (o.Kind == "Secret" || o.Kind == "ConfigMap") && o.Data == nil && o.Type == "" {
			empty[o.Metadata.Name] = true
		}
	}
	for _, o := range manifestObjects(t, file) {
		for _, r := range o.Rules {
			if !slices.Contains(r.Verbs, "update") || !strings.HasPrefix(o.Metadata.Name, account) {
				continue
			}
			for _, name := range r.ResourceNames {
				if !empty[name] {
					t.Errorf("%s may be written by %s: the manifest doesn't make it, or makes it with data", name, o.Metadata.Name)
				}
			}
		}
	}
	for text := range strings.SplitSeq(readText(t, "k8s-manifests/"+file), "\n---\n") {
		lasting := strings.Contains(text, "Prune=false") && strings.Contains(text, "prune: disabled")
		if is := strings.Contains(text, "\n  group: projectcalico.org\n") || strings.Contains(text, "\n  name: "+what+"-ca\n") || strings.Contains(text, "kind: ConfigMap\n") && strings.Contains(text, "\n  name: "+what+"\n"); is != lasting {
			t.Errorf("GitOps may prune, %v, what it must not, %v:\n%s", !lasting, is, text)
		}
	}
	if len(empty) != want {
		t.Errorf("objects without data: %v", empty)
	}
}
