// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/store"
)

// ParseConfig reads the arguments after "bootstrap" and the environment.
//
//	bootstrap         an etcd of Calico's own: members, certificates, users, data
//	bootstrap renew   its certificates, where they are due, its members' space, and all of it again where etcd is empty
//	bootstrap data    the data of an etcd that exists
func ParseConfig(args, environ []string, log *slog.Logger) (Config, error) {
	env := map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = strings.TrimSpace(value)
	}
	c := Config{Logger: log, Kube: kube.Config{Kubeconfig: env["KUBECONFIG"], Name: "calico-bootstrap", Logger: log}}
	switch what := strings.Join(args, " "); what {
	case "":
		c.Own = true
	case "renew":
		c.Own, c.Renew = true, true
	case "data":
		c.Store = store.Config{
			DiscoverySRV: env["ETCD_DISCOVERY_SRV"], CAFile: env["ETCD_CA_CERT_FILE"], CertFile: env["ETCD_CERT_FILE"], KeyFile: env["ETCD_KEY_FILE"],
			Username: env["ETCD_USERNAME"], PasswordFile: env["ETCD_PASSWORD_FILE"], Logger: log,
		}
		for e := range strings.SplitSeq(env["ETCD_ENDPOINTS"], ",") {
			if e = strings.TrimSpace(e); e != "" {
				c.Store.Endpoints = append(c.Store.Endpoints, e)
			}
		}
	default:
		return c, fmt.Errorf("bootstrap %q is not understood: want nothing, renew or data", what)
	}
	var errs []error
	switch n := env["ETCD_MEMBERS"]; n {
	case "", "1":
		c.Members = 1
	case "3":
		c.Members = 3
	default:
		errs = append(errs, fmt.Errorf("ETCD_MEMBERS %q: want 1 or 3", n))
	}
	for i, name := range []string{"CALICO_IPV4POOL_CIDR", "CALICO_IPV6POOL_CIDR"} {
		pools, err := parsePools(env[name])
		if err == nil && (len(pools) > 1 || len(pools) == 1 && pools[0].Addr().Is6() != (i == 1)) {
			err = fmt.Errorf("%q: want one network of its family", env[name])
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		c.Pools = append(c.Pools, pools...)
	}
	return c, errors.Join(errs...)
}
