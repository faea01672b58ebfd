// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/calico-go/calico/pkg/lab"
)

// field is where contenders meet: labs with etcd, and a namespace per host and
// per pod.
type field struct {
	labs       []*lab.Lab
	contenders []*contender
	ours       map[string]*contender // plain, tls, gate
	scratch    string
}

func (f *field) close() error {
	var errs []error
	for _, l := range f.labs {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(f.scratch))...)
}

// namespaces makes n pods' namespaces, wired to nothing.
func (f *field) namespaces(n int) ([]lab.Namespace, error) {
	var made []lab.Namespace
	for i := range n {
		ns, err := f.labs[0].NewNamespace(fmt.Sprintf("pod%d", i))
		if err != nil {
			return nil, err
		}
		made = append(made, ns)
	}
	return made, nil
}

// newField sets up every contender, peers first.
func (b *bench) newField(ctx context.Context) (_ *field, err error) {
	scratch, err := os.MkdirTemp("", "calico-bench-")
	if err != nil {
		return nil, err
	}
	f := &field{ours: map[string]*contender{}, scratch: scratch}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	noGate := func(_ string, plugin map[string]any) { plugin["policy_setup_timeout_seconds"] = 0 }
	ipv4Only := func(conf map[string]any) {
		conf["ipam"] = map[string]any{"type": "calico-ipam", "assign_ipv4": "true", "assign_ipv6": "false"}
	}
	variants := []struct {
		key, name string
		cfg       lab.Config
	}{
		{"plain", "calico", lab.Config{NoAgent: true, Conf: noGate}},
		{"tls", "calico, TLS to etcd", lab.Config{NoAgent: true, TLS: true, Conf: noGate}},
		{"gate", "calico, with the gate", lab.Config{}},
	}
	var ours []*contender
	for _, v := range variants {
		cfg := v.cfg
		cfg.Name, cfg.Hosts, cfg.BinDir, cfg.DataDir = "bench-"+v.key, []string{"host"}, b.bin, filepath.Join(scratch, v.key)
		if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
			return nil, err
		}
		inner := cfg.Conf
		cfg.Conf = func(host string, plugin map[string]any) {
			ipv4Only(plugin) // as the peers do
			if inner != nil {
				inner(host, plugin)
			}
		}
		l, err := lab.Start(ctx, cfg)
		if err != nil {
			return nil, err
		}
		f.labs = append(f.labs, l)
		c, err := b.newContender(l, v.name)
		if err != nil {
			return nil, err
		}
		f.ours[v.key], ours = c, append(ours, c)
	}
	for _, p := range []string{"ptp", "bridge"} {
		host, err := f.labs[0].AddHost(ctx, p)
		if err != nil {
			return nil, err
		}
		pod, err := f.labs[0].NewNamespace(p + "-pod")
		if err != nil {
			return nil, err
		}
		conf, err := json.Marshal(map[string]any{
			"cniVersion": "1.0.0", "name": p, "type": p, "bridge": "cni0", "isGateway": true,
			"ipam": map[string]any{"type": "host-local", "subnet": "10.9.0.0/16", "dataDir": filepath.Join(scratch, p)},
		})
		if err != nil {
			return nil, err
		}
		f.contenders = append(f.contenders, &contender{
			plugin: plugin{name: p + " + host-local", bin: filepath.Join(b.peers, p), conf: conf},
			host:   host.Namespace(), pod: pod,
		})
	}
	f.contenders = append(f.contenders, ours...)
	return f, nil
}

// newContender is our plugin on the lab's host "host", with a namespace for its pod.
func (b *bench) newContender(l *lab.Lab, name string) (*contender, error) {
	host, err := l.FindHost("host")
	if err != nil {
		return nil, err
	}
	conf, err := pluginConf(host)
	if err != nil {
		return nil, err
	}
	pod, err := l.NewNamespace("pod")
	if err != nil {
		return nil, err
	}
	return &contender{
		plugin: plugin{name: name, bin: filepath.Join(b.bin, "calico"), conf: conf, env: host.Env()},
		host:   host.Namespace(), pod: pod,
	}, nil
}

// pluginConf turns the host's conflist into what a runtime hands to the plugin.
func pluginConf(host *lab.Host) ([]byte, error) {
	data, err := os.ReadFile(host.ConfFile())
	if err != nil {
		return nil, err
	}
	var list struct {
		CNIVersion string           `json:"cniVersion"`
		Name       string           `json:"name"`
		Plugins    []map[string]any `json:"plugins"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", host.ConfFile(), err)
	}
	conf := list.Plugins[0]
	conf["cniVersion"], conf["name"] = list.CNIVersion, list.Name
	return json.Marshal(conf)
}
