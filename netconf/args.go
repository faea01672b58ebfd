// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// Args are what CNI_ARGS says.
type Args struct {
	IgnoreUnknown    bool
	PodNamespace     string
	PodName          string
	InfraContainerID string
	PodUID           string
	IPs              []netip.Addr
	MAC              model.MAC
}

// ParseArgs reads CNI_ARGS: pairs K=V with semicolons between. An unknown key
// is an error, unless IgnoreUnknown is set.
func ParseArgs(s string) (Args, error) {
	var a Args
	var unknown []string
	for _, pair := range strings.Split(s, ";") {
		pair = strings.TrimSpace(pair)
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return Args{}, fmt.Errorf("CNI_ARGS: %q is no pair: want KEY=VALUE;KEY=VALUE", pair)
		}
		switch key {
		case "IgnoreUnknown":
			switch strings.ToLower(value) {
			case "1", "true":
				a.IgnoreUnknown = true
			case "0", "false", "":
			default:
				return Args{}, fmt.Errorf("CNI_ARGS: IgnoreUnknown: want 1, true, 0 or false, got %q", value)
			}
		case "K8S_POD_NAMESPACE":
			a.PodNamespace = value
		case "K8S_POD_NAME":
			a.PodName = value
		case "K8S_POD_INFRA_CONTAINER_ID":
			a.InfraContainerID = value
		case "K8S_POD_UID":
			a.PodUID = value
		case "IP":
			for _, one := range strings.Split(value, ",") {
				if one = strings.TrimSpace(one); one == "" {
					continue
				}
				addr, err := parseAddr(one)
				if err != nil {
					return Args{}, fmt.Errorf("CNI_ARGS: IP: %w", err)
				}
				a.IPs = append(a.IPs, addr)
			}
		case "MAC":
			if value == "" {
				continue
			}
			mac, err := parseMAC(value)
			if err != nil {
				return Args{}, fmt.Errorf("CNI_ARGS: MAC: %w", err)
			}
			a.MAC = mac
		default:
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 && !a.IgnoreUnknown {
		return Args{}, fmt.Errorf("CNI_ARGS: unknown %s: correct the name, or add IgnoreUnknown=1", strings.Join(unknown, ", "))
	}
	return a, nil
}
