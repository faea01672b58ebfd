// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/kube"
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
		{Variable: "CALICO_IPV4POOL_CIDR", Set: c.pool(false)},
		{Variable: "CALICO_IPV6POOL_CIDR", Set: c.pool(true)},
	}
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

// pool returns the setter of a family's default pool; "" sets none.
func (c *Config) pool(six bool) func(string) error {
	return func(s string) error {
		pools, err := parsePools(s)
		if err == nil && (len(pools) > 1 || len(pools) == 1 && pools[0].Addr().Is6() != six) {
			err = fmt.Errorf("%q: want one network of its family", s)
		}
		c.Pools = append(c.Pools, pools...)
		return err
	}
}
