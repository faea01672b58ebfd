// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/model"
)

// ParseConfig reads the arguments after "bootstrap" and the environment.
//
//	bootstrap            an etcd of Calico's own: members, certificates, users, data
//	bootstrap renew      its certificates, where they are due, its members' space, and all of it again where etcd is empty
//	bootstrap sign       answers requests for nodes' certificates
//	bootstrap sign-nsm   answers requests for those of the managers of network services
//	bootstrap data       the data of an etcd that exists
func ParseConfig(args, environ []string, log *slog.Logger) (c Config, err error) {
	c = Config{Logger: log, Kube: kube.Config{Name: "calico-bootstrap", Logger: log}}
	options := []run.Option{
		{Variable: "KUBECONFIG", Set: run.Text(&c.Kube.Kubeconfig)},
		{Variable: "ETCD_MEMBERS", Initial: "1", Set: func(s string) error {
			if c.Members, _ = strconv.Atoi(strings.TrimSpace(s)); c.Members != 1 && c.Members != 3 {
				return fmt.Errorf("%q: want 1 or 3", s)
			}
			return nil
		}},
		{Variable: "NO_DEFAULT_POOLS", Initial: "false", Set: run.Bool(&c.NoPools)},
	}
	options = append(options, c.poolOptions("CALICO_IPV4POOL_", &c.Pool4)...)
	options = append(options, c.poolOptions("CALICO_IPV6POOL_", &c.Pool6)...)
	switch what := strings.Join(args, " "); what {
	case "":
		c.Own = true
	case "renew":
		c.Own, c.Renew = true, true
	case "sign":
		c.Own, c.Renew, c.Sign = true, true, true
	case "sign-nsm":
		c.SignNSM = true
	case "data":
		c.Store.Logger = log
		options = append(options, run.Etcd(&c.Store)...)
	default:
		return c, fmt.Errorf("bootstrap %q is not understood: want nothing, renew, sign, sign-nsm or data", what)
	}
	err = run.ParseEnviron(options, environ)
	return c, err
}

// encapsulations are the values of …POOL_ENCAPSULATION. IPIP is refused for IPv6 when the pool is written.
var encapsulations = map[string]model.Pool{
	"None":             {},
	"IPIP":             {IPIP: "tunl0", IPIPMode: model.EncapAlways},
	"IPIPCrossSubnet":  {IPIP: "tunl0", IPIPMode: model.EncapCrossSubnet},
	"VXLAN":            {VXLANMode: model.EncapAlways},
	"VXLANCrossSubnet": {VXLANMode: model.EncapCrossSubnet},
}

// poolOptions are those of a family's default pool.
func (c *Config) poolOptions(prefix string, pool *model.Pool) []run.Option {
	return []run.Option{
		{Variable: prefix + "CIDR", Set: func(s string) error {
			pools, err := parsePools(s)
			if err == nil && (len(pools) > 1 || len(pools) == 1 && pools[0].Addr().Is6() != (pool == &c.Pool6)) {
				err = fmt.Errorf("%q: want one network of its family", s)
			}
			c.Pools = append(c.Pools, pools...)
			return err
		}},
		{Variable: prefix + "ENCAPSULATION", Initial: "VXLANCrossSubnet", Set: func(s string) error {
			e, ok := encapsulations[s]
			if !ok {
				return fmt.Errorf("%q: want one of %s", s, strings.Join(slices.Sorted(maps.Keys(encapsulations)), ", "))
			}
			pool.IPIP, pool.IPIPMode, pool.VXLANMode = e.IPIP, e.IPIPMode, e.VXLANMode
			return nil
		}},
		{Variable: prefix + "BLOCK_SIZE", Initial: "0", Set: run.Count(&pool.BlockSize)},
		{Variable: prefix + "NAT_OUTGOING", Initial: "true", Set: run.Bool(&pool.Masquerade)},
	}
}
