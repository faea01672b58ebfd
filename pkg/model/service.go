// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// servicePort begins the names of the ports of Services. No pod's port can have such a name.
const servicePort = "svc."

// ServicePort returns the name of the ports of a Service, by which rules refer to it.
func ServicePort(namespace, name string) string { return servicePort + namespace + "." + name }

// ServiceOf returns the Service that a ServicePort is of.
func ServiceOf(port string) (namespace, name string, is bool) {
	rest, is := strings.CutPrefix(port, servicePort)
	namespace, name, dotted := strings.Cut(rest, ".")
	return namespace, name, is && dotted && namespace != "" && name != "" && !strings.Contains(name, ".")
}

// areServices reports whether all ports are of Services, whose protocols are known.
func areServices(ports []Port) bool {
	return !slices.ContainsFunc(ports, func(p Port) bool { _, _, is := ServiceOf(p.Name); return !is })
}

func parseService(r *reader) (s Service, err error) {
	err = r.record(into("endpoints", &s.Endpoints, each(func(r *reader) (e ServiceEndpoints, err error) {
		err = r.record(into("nets", &e.Nets, each((*reader).prefix)), into("ports", &e.Ports, each(parseEndpointPort)))
		return e, err
	})))
	return s, err
}

// mostServicePorts is how many addresses with a port a Service may lead to: each is an element of a set in each kernel.
const mostServicePorts = 1 << 16

func (s Service) check() error {
	all := 0
	for _, e := range s.Endpoints {
		all += len(e.Nets) * len(e.Ports)
	}
	if all > mostServicePorts {
		return inField("endpoints", fmt.Errorf("%d addresses with a port: at most %d", all, mostServicePorts))
	}
	for i, e := range s.Endpoints {
		for j, n := range e.Nets {
			if !n.IsSingleIP() {
				return inField("endpoints", atIndex(i, inField("nets", atIndex(j, errors.New("want a single address")))))
			}
		}
		for j, p := range e.Ports {
			if err := p.check(); err != nil {
				return inField("endpoints", atIndex(i, inField("ports", atIndex(j, err))))
			}
		}
	}
	return nil
}

func (s Service) format(w *writer) error {
	w.open('{')
	writeList(w, "endpoints", s.Endpoints, func(w *writer, e ServiceEndpoints) {
		w.open('{')
		w.prefixes("nets", e.Nets)
		writeList(w, "ports", e.Ports, writeEndpointPort)
		w.close('}')
	})
	w.close('}')
	return nil
}
