// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// Args are the contents of CNI_ARGS.
type Args struct {
	IgnoreUnknown    bool
	PodNamespace     string
	PodName          string
	InfraContainerID string
	PodUID           string
	IPs              []netip.Addr
	MAC              model.MAC
}

// ParseArgs parses CNI_ARGS: pairs K=V separated by semicolons. An unknown key is an error unless IgnoreUnknown is set.
// It returns the first error, along with everything else that could be read.
func ParseArgs(s string) (Args, error) {
	var a Args
	var unknown []string
	var wrong error
	note := func(format string, args ...any) {
		if wrong == nil {
			wrong = fmt.Errorf("CNI_ARGS: "+format, args...)
		}
	}
	for _, pair := range strings.Split(s, ";") {
		pair = strings.TrimSpace(pair)
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			note("%q is no pair: want KEY=VALUE;KEY=VALUE", pair)
			continue
		}
		switch key {
		case "IgnoreUnknown":
			switch strings.ToLower(value) {
			case "1", "true":
				a.IgnoreUnknown = true
			case "0", "false", "":
			default:
				note("IgnoreUnknown: want 1, true, 0 or false, got %q", value)
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
					note("IP: %w", err)
					continue
				}
				a.IPs = append(a.IPs, addr)
			}
		case "MAC":
			if value == "" {
				continue
			}
			mac, err := parseMAC(value)
			if err != nil {
				note("MAC: %w", err)
				continue
			}
			a.MAC = mac
		default:
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 && !a.IgnoreUnknown {
		note("unknown %s: correct the name, or add IgnoreUnknown=1", strings.Join(unknown, ", "))
	}
	return a, wrong
}
