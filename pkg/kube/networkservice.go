// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// networkServices is the version of the kinds by which managers of network services find one another's endpoints. Their fields are those
// of the messages in api/nsm.
var networkServices = schema.GroupVersion{Group: "networkservicemesh.io", Version: "v1"}

// NetworkService is a network service, identified by its name.
type NetworkService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              NetworkServiceSpec `json:"spec"`
}

// NetworkServiceSpec says what a service's connections carry, like ETHERNET or IPv4.
type NetworkServiceSpec struct {
	Payload string `json:"payload,omitempty"`
}

// NetworkServiceEndpoint is what an endpoint offers.
type NetworkServiceEndpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              NetworkServiceEndpointSpec `json:"spec"`
}

// NetworkServiceEndpointSpec names the endpoint, its manager's node, and that manager's address as host:port.
type NetworkServiceEndpointSpec struct {
	Service    string             `json:"network_service_name"`
	Host       string             `json:"network_service_host"`
	Name       string             `json:"nse_provider_name"`
	Address    string             `json:"address"`
	Interfaces []NetworkInterface `json:"interface"`
}

// NetworkInterface is an interface that an endpoint offers. Type is a word like KERNEL_INTERFACE.
type NetworkInterface struct {
	Type       string            `json:"type"`
	Parameters NetworkParameters `json:"parmeters,omitzero"` // as the messages spell it
}

// NetworkParameters are the parameters of an interface.
type NetworkParameters struct {
	Parameters map[string]string `json:"interface_parameters,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (s *NetworkService) DeepCopyObject() runtime.Object { return copied(s) }

// DeepCopyObject implements runtime.Object.
func (e *NetworkServiceEndpoint) DeepCopyObject() runtime.Object { return copied(e) }

// copied returns a deep copy of a value that JSON encodes completely.
func copied[T any](o *T) *T {
	out := new(T)
	data, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		panic(err) // a type that JSON can't write
	}
	return out
}

// addNetworkServices adds the kinds to a scheme. Lists of them are read untyped, as are those of every custom kind.
func addNetworkServices(s *runtime.Scheme) error {
	s.AddKnownTypes(networkServices, &NetworkService{}, &NetworkServiceEndpoint{})
	metav1.AddToGroupVersion(s, networkServices)
	return nil
}
