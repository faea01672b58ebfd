// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// describe summarises the value of a key in a few lines for people; `calico-lab dump` prints the complete value.
func describe(e model.Entry) []string {
	if e.Err != nil {
		return []string{"invalid: " + e.Err.Error()}
	}
	switch v := e.Value.(type) {
	case model.Ready:
		return []string{fmt.Sprint(v)}
	case model.Text:
		return []string{string(v)}
	case model.WorkloadEndpoint:
		return []string{
			fmt.Sprintf("state %s, interface %s, mac %s", v.State, v.Name, v.MAC),
			"nets " + prefixes(v.IPv4Nets, v.IPv6Nets),
			"profiles " + strings.Join(v.ProfileIDs, ", "),
		}
	case model.Block:
		used := 0
		for _, a := range v.Allocations {
			if a != model.Free {
				used++
			}
		}
		return []string{fmt.Sprintf("affinity to %s, %d of %d addresses in use", orNone(v.Affinity), used, len(v.Allocations))}
	case model.Handle:
		var lines []string
		for _, cidr := range slices.SortedFunc(maps.Keys(v.Blocks), netip.Prefix.Compare) {
			lines = append(lines, fmt.Sprintf("holds %d of %s", v.Blocks[cidr], cidr))
		}
		return lines
	case model.Pool:
		return []string{fmt.Sprintf("blocks of /%d", v.BlockSize)}
	case model.Status:
		return []string{fmt.Sprintf("the agent has been up for %v", v.Uptime)}
	case model.EndpointStatus:
		return []string{string(v)}
	case model.Rules:
		return []string{fmt.Sprintf("%d rules in, %d out", len(v.Inbound), len(v.Outbound))}
	case model.Tags:
		return []string{strings.Join(v, ", ")}
	case model.HostMetadata, model.Affinity:
		return []string{"{}"}
	}
	return []string{fmt.Sprintf("%+v", e.Value)}
}

func prefixes(lists ...[]netip.Prefix) string {
	var texts []string
	for _, p := range slices.Concat(lists...) {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}

func orNone(s string) string {
	if s == "" {
		return "no host"
	}
	return "host " + s
}

// holdsPods reports whether an entry exists because of a pod, and must be gone once all pods are. A block without
// addresses in use stays with its host.
func holdsPods(e model.Entry) bool {
	switch v := e.Value.(type) {
	case model.WorkloadEndpoint, model.Handle:
		return true
	case model.Block:
		return slices.ContainsFunc(v.Allocations, func(a int) bool { return a != model.Free })
	}
	if _, ok := e.Key.(model.WorkloadStatusKey); ok {
		return true
	}
	return e.Err != nil
}
