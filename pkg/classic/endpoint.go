// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// Endpoint is the content of an endpoint's messages.
type Endpoint struct {
	ID        string
	Interface string
	Addrs     []Addr
	MAC       model.MAC
	Enabled   bool
}

// Addr is an address of an endpoint.
type Addr struct {
	Addr    netip.Addr
	Gateway netip.Addr // invalid if it has none
}

// wireAddr is the encoding of an address.
type wireAddr struct {
	Addr       netip.Addr     `json:"addr"`
	Gateway    *netip.Addr    `json:"gateway"`
	Properties map[string]any `json:"properties"`
}

// wireEndpoint has the common fields of ENDPOINTCREATED and ENDPOINTUPDATED.
type wireEndpoint struct {
	Addrs []wireAddr `json:"addrs"`
	MAC   string     `json:"mac"`
	State string     `json:"state"`
}

// wireCreated and wireUpdated are the encodings of messages about an endpoint.
type (
	wireCreated struct {
		Type      string `json:"type"`
		ID        string `json:"endpoint_id"`
		Interface string `json:"interface_name"`
		wireEndpoint
		Resync *string     `json:"resync_id"`
		Issued json.Number `json:"issued"`
	}
	wireUpdated struct {
		Type string `json:"type"`
		ID   string `json:"endpoint_id"`
		wireEndpoint
		Issued json.Number `json:"issued"`
	}
)

// Equal reports whether both mean the same.
func (e Endpoint) Equal(o Endpoint) bool {
	return e.ID == o.ID && e.Interface == o.Interface && e.MAC == o.MAC && e.Enabled == o.Enabled && slices.Equal(e.Addrs, o.Addrs)
}

func (e Endpoint) wire() wireEndpoint {
	w := wireEndpoint{Addrs: make([]wireAddr, 0, len(e.Addrs)), MAC: e.MAC.String(), State: "disabled"}
	if e.Enabled {
		w.State = "enabled"
	}
	for _, a := range e.Addrs {
		addr := wireAddr{Addr: a.Addr, Properties: map[string]any{"gr": false}}
		if a.Gateway.IsValid() {
			addr.Gateway = &a.Gateway
		}
		w.Addrs = append(w.Addrs, addr)
	}
	return w
}

// created returns an ENDPOINTCREATED. If resync is "", it doesn't answer a RESYNCSTATE.
func (e Endpoint) created(resync string, now time.Time) wireCreated {
	w := wireCreated{Type: TypeCreated, ID: e.ID, Interface: e.Interface, wireEndpoint: e.wire(), Issued: timestamp(now)}
	if resync != "" {
		w.Resync = &resync
	}
	return w
}

func (e Endpoint) updated(now time.Time) wireUpdated {
	return wireUpdated{TypeUpdated, e.ID, e.wire(), timestamp(now)}
}

// CheckID rejects invalid IDs of endpoints: an ID becomes a topic and a part of names.
func CheckID(id string) error {
	if id == "" || len(id) > 64 || strings.ContainsFunc(id, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.')
	}) || id == "." || id == ".." {
		return fmt.Errorf("%.80q: want a UUID", id)
	}
	return nil
}

func parseID(o object) (string, error) {
	id, err := o.text("endpoint_id")
	if err == nil {
		if bad := CheckID(id); bad != nil {
			err = &fieldError{"endpoint_id", bad}
		}
	}
	return id, err
}

// parseEndpoint parses an ENDPOINTCREATED, or an ENDPOINTUPDATED, which has no interface.
func parseEndpoint(o object, created bool) (e Endpoint, err error) {
	if e.ID, err = parseID(o); err != nil {
		return e, err
	}
	if created {
		if e.Interface, err = o.text("interface_name"); err != nil {
			return e, err
		}
		if err := model.CheckInterface(e.Interface); err != nil {
			return e, &fieldError{"interface_name", err}
		}
	}
	if o.null("addrs") {
		return e, &fieldError{field: "addrs"}
	}
	list, err := o.list("addrs")
	if err != nil {
		return e, err
	}
	for i, raw := range list {
		a, err := parseEndpointAddr(raw)
		if err == nil && slices.ContainsFunc(e.Addrs, func(b Addr) bool { return a.Addr == b.Addr }) {
			err = fmt.Errorf("address %s is repeated", a.Addr)
		}
		if err != nil {
			return e, &fieldError{"addrs", fmt.Errorf("entry %d: %w", i, err)}
		}
		e.Addrs = append(e.Addrs, a)
	}
	mac, err := o.text("mac")
	if err != nil {
		return e, err
	}
	if e.MAC, err = model.ParseMAC(mac); err != nil {
		return e, &fieldError{"mac", err}
	}
	state, err := o.text("state")
	if err != nil {
		return e, err
	}
	if e.Enabled = state == "enabled"; !e.Enabled && state != "disabled" {
		return e, &fieldError{"state", fmt.Errorf(`%.32q: want "enabled" or "disabled"`, state)}
	}
	return e, nil
}

func parseEndpointAddr(raw json.RawMessage) (a Addr, err error) {
	var o object
	if json.Unmarshal(raw, &o) != nil || o == nil {
		return a, errors.New("want an object")
	}
	text, err := o.text("addr")
	if err != nil {
		return a, err
	}
	if a.Addr, err = parseAddr(text); err != nil {
		return a, &fieldError{"addr", err}
	}
	if a.Addr.IsUnspecified() || a.Addr.IsMulticast() || a.Addr.IsLoopback() {
		return a, &fieldError{"addr", fmt.Errorf("%s: no endpoint has this address", a.Addr)}
	}
	if text, err = o.optionalText("gateway"); err != nil || text == "" {
		return a, err
	}
	if a.Gateway, err = parseAddr(text); err != nil {
		return a, &fieldError{"gateway", err}
	}
	if a.Gateway.Is4() != a.Addr.Is4() {
		return a, &fieldError{"gateway", fmt.Errorf("%s is not of the family of address %s", a.Gateway, a.Addr)}
	}
	return a, nil
}

// orchestrator distinguishes these endpoints from others in the data model.
const orchestrator = "classic"

// key returns the endpoint's key in the data model.
func (e Endpoint) key(host string) model.WorkloadEndpointKey {
	return model.WorkloadEndpointKey{Host: host, Orchestrator: orchestrator, Workload: e.ID, Endpoint: e.ID}
}

// model returns the endpoint in the data model, with a profile for its ACL. The error says what is invalid on every
// host.
func (e Endpoint) model(profile string) (model.WorkloadEndpoint, error) {
	out := model.WorkloadEndpoint{State: model.StateInactive, Name: e.Interface, MAC: e.MAC, ProfileIDs: []string{profile}}
	if e.Enabled {
		out.State = model.StateActive
	}
	for _, a := range e.Addrs {
		nets, gateway := &out.IPv4Nets, &out.IPv4Gateway
		if a.Addr.Is6() {
			nets, gateway = &out.IPv6Nets, &out.IPv6Gateway
		}
		*nets = append(*nets, netip.PrefixFrom(a.Addr, a.Addr.BitLen()))
		if !gateway.IsValid() {
			*gateway = a.Gateway
		}
	}
	_, err := model.FormatValue(out)
	return out, err
}

// subnets makes a machine be served by DHCP: these APIs have no networks, so each address becomes a subnet, with the
// gateway next to it on the link. It sets their IDs in the endpoint.
func (e Endpoint) subnets(in *model.WorkloadEndpoint) (out []model.Entry) {
	for _, family := range [...]struct {
		v6  bool
		ids *[]string
	}{{false, &in.IPv4SubnetIDs}, {true, &in.IPv6SubnetIDs}} {
		var ids []string
		var subnets []model.Entry
		all := true
		for _, a := range e.Addrs {
			if a.Addr.Is6() != family.v6 {
				continue
			}
			all = all && a.Gateway.IsValid()
			key := model.DHCPSubnetKey{ID: orchestrator + "-" + e.ID + "-" + a.Addr.String() + "-" + a.Gateway.String()}
			ids = append(ids, key.ID)
			subnets = append(subnets, model.Entry{Path: key.Path(), Key: key, Value: model.Subnet{CIDR: netip.PrefixFrom(a.Addr, a.Addr.BitLen()), GatewayIP: a.Gateway}})
		}
		if all {
			*family.ids = ids
			out = append(out, subnets...)
		}
	}
	return out
}
