// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"encoding/json"
	"errors"
	"math/big"
	"strings"
)

// Bandwidth limits what an interface may receive and send, in bits per second; 0 = unlimited.
type Bandwidth struct{ Ingress, Egress uint64 }

// Bounds of a rate, the same as in Kubernetes.
const (
	minRate = 1_000
	maxRate = 1_000_000_000_000_000
)

// suffixes of a Kubernetes quantity.
var suffixes = map[string]*big.Rat{
	"": big.NewRat(1, 1), "m": big.NewRat(1, 1000),
	"k": big.NewRat(1e3, 1), "M": big.NewRat(1e6, 1), "G": big.NewRat(1e9, 1), "T": big.NewRat(1e12, 1), "P": big.NewRat(1e15, 1), "E": big.NewRat(1e18, 1),
	"Ki": big.NewRat(1<<10, 1), "Mi": big.NewRat(1<<20, 1), "Gi": big.NewRat(1<<30, 1), "Ti": big.NewRat(1<<40, 1), "Pi": big.NewRat(1<<50, 1), "Ei": big.NewRat(1<<60, 1),
}

var errRate = errors.New("want a number of bits per second from 1k to 1P, like 10M")

// parseRate parses a Kubernetes quantity: a decimal number with a suffix or a decimal exponent.
func parseRate(s string) (uint64, error) {
	end := strings.LastIndexAny(s, "0123456789.") + 1
	factor, ok := suffixes[s[end:]]
	number, exponent, _ := strings.Cut(strings.ToLower(s[:end]), "e")
	// Longer or larger numbers are not valid, and would take time to parse.
	if !ok || len(number) > 32 || len(exponent) > 3 || strings.Trim(number, "+0123456789.") != "" || number != s[:end] && factor.Cmp(suffixes[""]) != 0 {
		return 0, errRate
	}
	n, ok := new(big.Rat).SetString(s[:end])
	if !ok {
		return 0, errRate
	}
	n.Mul(n, factor)
	if n.Cmp(big.NewRat(minRate, 1)) < 0 || n.Cmp(big.NewRat(maxRate, 1)) > 0 {
		return 0, errRate
	}
	return new(big.Int).Quo(n.Num(), n.Denom()).Uint64(), nil
}

// parseBandwidth reads what the runtime passes for the capability bandwidth. It ignores bursts: runtimes pass the
// largest possible number.
func (o object) parseBandwidth(b *Bandwidth) {
	for field, to := range map[string]*uint64{"ingressRate": &b.Ingress, "egressRate": &b.Egress} {
		raw := o.get(field)
		if raw == nil {
			continue
		}
		var n uint64
		if json.Unmarshal(raw, &n) != nil || n != 0 && (n < minRate || n > maxRate) {
			o.fail(field, "want bits per second, 0 or %d to %d, got %.40s", uint64(minRate), uint64(maxRate), raw)
			continue
		}
		*to = n
	}
}
