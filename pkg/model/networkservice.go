// SPDX-License-Identifier: Apache-2.0

package model

// NetworkService is a service offered by endpoints. Payload is what its connections carry, such as ETHERNET or IPv4;
// clients are told.
type NetworkService struct{ Payload string }

func parseNetworkService(r *reader) (s NetworkService, err error) {
	err = r.record(into("payload", &s.Payload, (*reader).str))
	return s, err
}

func (s NetworkService) format(w *writer) error {
	w.open('{')
	if s.Payload != "" {
		w.str("payload", s.Payload)
	}
	w.close('}')
	return nil
}

// NetworkServiceEndpoint says what an endpoint of a network service offers, and the address of its manager, host:port.
type NetworkServiceEndpoint struct {
	Address    string
	Interfaces []NetworkServiceInterface
}

// NetworkServiceInterface is an interface that an endpoint offers. Type is its name in the messages, such as
// KERNEL_INTERFACE.
type NetworkServiceInterface struct {
	Type       string
	Parameters map[string]string
}

func parseNetworkServiceEndpoint(r *reader) (e NetworkServiceEndpoint, err error) {
	err = r.record(
		into("address", &e.Address, (*reader).str),
		into("interfaces", &e.Interfaces, each(parseNetworkServiceInterface)),
	)
	return e, err
}

func parseNetworkServiceInterface(r *reader) (i NetworkServiceInterface, err error) {
	err = r.record(
		into("type", &i.Type, (*reader).str),
		into("parameters", &i.Parameters, (*reader).stringMap),
	)
	return i, err
}

// check requires the manager's address.
func (e NetworkServiceEndpoint) check() error {
	if e.Address == "" {
		return missing("address")
	}
	return nil
}

func (e NetworkServiceEndpoint) format(w *writer) error {
	w.open('{')
	w.str("address", e.Address)
	if len(e.Interfaces) > 0 {
		writeList(w, "interfaces", e.Interfaces, func(w *writer, i NetworkServiceInterface) {
			w.open('{')
			w.str("type", i.Type)
			if len(i.Parameters) > 0 {
				w.name("parameters")
				w.stringMap(i.Parameters)
			}
			w.close('}')
		})
	}
	w.close('}')
	return nil
}
