// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// defaultPool is Calico's usual default, for when the pods' addresses are configured nowhere.
const defaultPool = "192.168.0.0/16"

// failsafeInbound and failsafeOutbound are the ports that stay open on host endpoints whatever policy says: the agent's defaults, and those
// of our own etcd.
const (
	failsafeInbound  = "tcp:22,udp:68,udp:546,tcp:179,tcp:2379,tcp:2380,tcp:2479,tcp:2480,tcp:6443"
	failsafeOutbound = "tcp:179,tcp:2379,tcp:2380,tcp:2479,tcp:2480,tcp:6443,udp:53,udp:67,udp:547"
)

// users returns etcd's users other than the nodes', for which see nodeUser.
func users() []store.User {
	return []store.User{{Name: "controllers", Write: []string{model.Root}}, {Name: "ctl", Write: []string{model.Root}}}
}

// pools returns the default pools: those configured, else kubeadm's.
func (b *bootstrapper) pools(ctx context.Context) ([]netip.Prefix, error) {
	switch {
	case b.cfg.NoPools:
		return nil, nil
	case len(b.cfg.Pools) > 0:
		return b.cfg.Pools, nil
	}
	config, err := kube.Get[corev1.ConfigMap](ctx, b.kube, namespace, "kubeadm-config")
	switch {
	case errors.Is(err, os.ErrNotExist):
		b.log.Info("no ConfigMap kubeadm-config says which addresses pods have, nor does CALICO_IPV4POOL_CIDR", "default", defaultPool)
		return []netip.Prefix{netip.MustParsePrefix(defaultPool)}, nil
	case err != nil:
		return nil, err
	}
	pools, err := podSubnets(config.Data["ClusterConfiguration"])
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/kubeadm-config: %w: correct it, or set CALICO_IPV4POOL_CIDR", namespace, err)
	}
	if len(pools) == 0 {
		b.log.Info("kubeadm has set no podSubnet", "default", defaultPool)
		pools = []netip.Prefix{netip.MustParsePrefix(defaultPool)}
	}
	return pools, nil
}

// podSubnets reads networking.podSubnet of kubeadm's ClusterConfiguration: one network, or one of each family.
func podSubnets(config string) ([]netip.Prefix, error) {
	var c struct {
		Networking struct {
			PodSubnet string `json:"podSubnet"`
		} `json:"networking"`
	}
	if err := yaml.Unmarshal([]byte(config), &c); err != nil {
		return nil, fmt.Errorf("ClusterConfiguration: %w", err)
	}
	return parsePools(c.Networking.PodSubnet)
}

func parsePools(text string) (pools []netip.Prefix, err error) {
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		p, err := netip.ParsePrefix(one)
		if err != nil || p.Addr().Is4In6() {
			return nil, fmt.Errorf("pod network %q: want a network such as %s", one, defaultPool)
		}
		pools = append(pools, p.Masked())
	}
	return pools, nil
}

// fill writes, in one transaction, what an etcd lacks of our data; what exists stays as it is. Ready is part of it, so agents act on all of
// it or on nothing. With Renew an etcd that has Ready gets only a missing ClusterGUID, whatever else was deleted. fill returns the keys
// that it wrote.
func fill(ctx context.Context, etcd *store.Client, pools []netip.Prefix, cfg Config) (wrote []string, err error) {
	guid := make([]byte, 16)
	if _, err := rand.Read(guid); err != nil {
		return nil, err
	}
	name := model.Put{Key: model.GlobalConfigKey{Name: "ClusterGUID"}, Value: model.Text(hex.EncodeToString(guid))} // no node may write it
	missing := []model.Put{
		{Key: model.ReadyKey{}, Value: model.Ready(true)}, name,
		{Key: model.ProfileRulesKey{Profile: kubepolicy.DefaultAllow}, Value: model.Rules{
			Inbound: []model.Rule{{Action: model.ActionAllow}}, Outbound: []model.Rule{{Action: model.ActionAllow}},
		}},
	}
	if cfg.Own {
		missing = append(missing,
			model.Put{Key: model.GlobalConfigKey{Name: "FailsafeInboundHostPorts"}, Value: model.Text(failsafeInbound)},
			model.Put{Key: model.GlobalConfigKey{Name: "FailsafeOutboundHostPorts"}, Value: model.Text(failsafeOutbound)})
	}
	wants := []model.Range{model.PrefixRange(model.PoolPrefix())}
	for _, m := range missing {
		wants = append(wants, model.KeyRange(m.Key))
	}
	_, err = etcd.Transact(ctx, wants, func(view *model.View) (model.Change, error) {
		var change model.Change
		wrote = nil
		put := func(p model.Put) {
			change.Compares = append(change.Compares, model.Compare{Key: p.Key})
			change.Puts = append(change.Puts, p)
			wrote = append(wrote, p.Key.Path())
		}
		if cfg.Renew && view.Get(model.ReadyKey{}).Exists() {
			if !view.Get(name.Key).Exists() {
				put(name)
			}
			return change, nil
		}
		if entries, _ := view.Read(wants[0]); len(entries) == 0 {
			name4, name6 := "default-ipv4-ippool", "default-ipv6-ippool" // Calico's names, of the first of each family
			for _, cidr := range pools {
				pool, free := cfg.Pool4, &name4
				if cidr.Addr().Is6() {
					pool, free = cfg.Pool6, &name6
				}
				pool.CIDR, pool.IPAM, pool.Name, *free = cidr, true, *free, ""
				put(model.Put{Key: model.PoolKey{CIDR: cidr}, Value: pool})
			}
		}
		for _, m := range missing {
			if !view.Get(m.Key).Exists() {
				put(m)
			}
		}
		return change, nil
	})
	if err != nil {
		return nil, fmt.Errorf("write what etcd lacks: %w", err)
	}
	return wrote, nil
}
