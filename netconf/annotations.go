// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// The pod annotations that are read.
const (
	AnnotationIPv4Pools     = annotationPrefix + "ipv4pools"
	AnnotationIPv6Pools     = annotationPrefix + "ipv6pools"
	AnnotationIPAddrs       = annotationPrefix + "ipAddrs"
	AnnotationIPAddrsNoIPAM = annotationPrefix + "ipAddrsNoIpam"
	AnnotationFloatingIPs   = annotationPrefix + "floatingIPs"
	AnnotationHWAddr        = annotationPrefix + "hwAddr"
	AnnotationIPFamilies    = annotationPrefix + "ipFamilies"
	AnnotationConnections   = annotationPrefix + "maxConnections"
	AnnotationIngress       = "kubernetes.io/ingress-bandwidth"
	AnnotationEgress        = "kubernetes.io/egress-bandwidth"

	annotationPrefix = "cni.projectcalico.org/"
)

// refused reports whether the annotation is one of Calico's that must not be ignored, since the pod would not get what
// it asks for.
func refused(annotation string) bool {
	return annotation == annotationPrefix+"allowedSourcePrefixes" || strings.HasPrefix(annotation, "qos.projectcalico.org/")
}

// Annotations are the requests of a pod, or of its namespace.
type Annotations struct {
	IPv4Pools, IPv6Pools []model.PoolRef
	IPAddrs              []netip.Addr // to be allocated
	IPAddrsNoIPAM        []netip.Addr // no address management
	FloatingIPs          []netip.Addr // mapped to the pod's own addresses
	MAC                  model.MAC
	// Families says whether to assign an IPv4 and an IPv6 address; nil: as configured.
	Families *Families
	// Bandwidth limits what the pod receives and sends.
	Bandwidth Bandwidth
	// MaxConnections is how many connections the pod may have begun at a time, unless the agent's limit is lower; 0 =
	// the agent's limit.
	MaxConnections int
}

// Families are address families.
type Families struct{ V4, V6 bool }

// AnnotationError is an annotation with an unusable value.
type AnnotationError struct{ Name, Value, Text string }

// Error begins with the name of the annotation.
func (e *AnnotationError) Error() string {
	return fmt.Sprintf("annotation %s, %.200q: %s", e.Name, e.Value, e.Text)
}

// ParseAnnotations parses a pod's annotations and ignores unknown ones. It returns every *AnnotationError, joined.
func ParseAnnotations(all map[string]string) (Annotations, error) {
	p := annotations{all: all}
	var a Annotations
	a.IPv4Pools = list(&p, AnnotationIPv4Pools, poolOf(false))
	a.IPv6Pools = list(&p, AnnotationIPv6Pools, poolOf(true))
	a.IPAddrs = list(&p, AnnotationIPAddrs, parsePodAddr)
	a.IPAddrsNoIPAM = list(&p, AnnotationIPAddrsNoIPAM, parsePodAddr)
	a.FloatingIPs = list(&p, AnnotationFloatingIPs, parsePodAddr)
	for _, family := range list(&p, AnnotationIPFamilies, parseFamily) {
		if a.Families == nil {
			a.Families = new(Families)
		}
		a.Families.V4, a.Families.V6 = a.Families.V4 || family.V4, a.Families.V6 || family.V6
	}
	one(&p, AnnotationHWAddr, &a.MAC, parseMAC)
	one(&p, AnnotationConnections, &a.MaxConnections, parseConnections)
	one(&p, AnnotationIngress, &a.Bandwidth.Ingress, parseRate)
	one(&p, AnnotationEgress, &a.Bandwidth.Egress, parseRate)
	if len(a.IPAddrs) > 0 && len(a.IPAddrsNoIPAM) > 0 {
		p.fail(AnnotationIPAddrsNoIPAM, "set together with "+AnnotationIPAddrs+": keep one of the two")
	}
	for name := range all {
		if refused(name) {
			p.fail(name, "this version has no such thing: take the annotation away")
		}
	}
	slices.SortFunc(p.errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return a, errors.Join(p.errs...)
}

func parseConnections(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > model.MaxConnections {
		return 0, fmt.Errorf("want a number, 1 to %d", model.MaxConnections)
	}
	return n, nil
}

// Annotate applies the annotations of the pod, or of its namespace: they add to the network configuration, and replace
// its pools and families. The error is one or several *AnnotationError.
func (c *Config) Annotate(all map[string]string) error {
	a, err := ParseAnnotations(all)
	if err != nil {
		return err
	}
	p := annotations{all: all}
	for _, feature := range []struct {
		name, field string
		set, on     bool
	}{
		{AnnotationIPAddrsNoIPAM, "ip_addrs_no_ipam", a.IPAddrsNoIPAM != nil, c.IPAddrsNoIPAM},
		{AnnotationFloatingIPs, "floating_ips", a.FloatingIPs != nil, c.FloatingIPs},
	} {
		if feature.set && !feature.on {
			p.fail(feature.name, "feature_control."+feature.field+" of the network configuration doesn't allow it")
		}
	}
	for _, name := range []string{AnnotationIPv4Pools, AnnotationIPv6Pools, AnnotationIPAddrs, AnnotationIPFamilies} {
		if _, set := all[name]; set && c.IPAM.Type != CalicoIPAM && c.IPAM.Type != "" {
			p.fail(name, "ipam.type is "+c.IPAM.Type+", which gives addresses as it is configured, not as a pod asks for")
		}
	}
	if a.IPv4Pools != nil {
		c.IPAM.IPv4Pools = a.IPv4Pools
	}
	if a.IPv6Pools != nil {
		c.IPAM.IPv6Pools = a.IPv6Pools
	}
	if a.Families != nil {
		c.IPAM.AssignIPv4, c.IPAM.AssignIPv6 = a.Families.V4, a.Families.V6
	}
	c.Pod = a
	return errors.Join(p.errs...)
}

// annotations reads annotations and collects errors.
type annotations struct {
	all  map[string]string
	errs []error
}

func (p *annotations) fail(name, text string) {
	p.errs = append(p.errs, &AnnotationError{name, p.all[name], text})
}

// one reads an annotation with a single value.
func one[T any](p *annotations, name string, to *T, parse func(string) (T, error)) {
	text, ok := p.all[name]
	if !ok {
		return
	}
	v, err := parse(strings.TrimSpace(text))
	if err != nil {
		p.fail(name, err.Error())
		return
	}
	*to = v
}

// list reads an annotation with a JSON list of strings.
func list[T comparable](p *annotations, name string, parse func(string) (T, error)) (out []T) {
	text, ok := p.all[name]
	if !ok {
		return nil
	}
	var items []*string
	if err := json.Unmarshal([]byte(text), &items); err != nil || len(items) == 0 {
		p.fail(name, `want a JSON list of strings, like ["…"]`)
		return nil
	}
	for _, item := range items {
		if item == nil {
			p.fail(name, `want a JSON list of strings, got null in it`)
			return nil
		}
		v, err := parse(*item)
		if err != nil {
			p.fail(name, err.Error())
			return nil
		}
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// parsePodAddr parses an address that a pod can have.
func parsePodAddr(s string) (netip.Addr, error) {
	a, err := parseAddr(s)
	if err == nil && !a.IsGlobalUnicast() {
		return a, fmt.Errorf("want an address that can be routed to, got %q", s)
	}
	return a, err
}

func parseFamily(s string) (f Families, err error) {
	switch s {
	case "IPv4":
		f.V4 = true
	case "IPv6":
		f.V6 = true
	default:
		err = fmt.Errorf("want IPv4 or IPv6, got %q", s)
	}
	return f, err
}

// poolOf returns a function that parses the CIDR of a pool of one family, or the name of a pool.
func poolOf(v6 bool) func(string) (model.PoolRef, error) {
	return func(s string) (model.PoolRef, error) {
		ref, err := model.ParsePoolRef(s)
		if err == nil && ref.CIDR.IsValid() && ref.CIDR.Addr().Is6() != v6 {
			err = fmt.Errorf("%s is of the wrong family", s)
		}
		return ref, err
	}
}
