// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/utils"
)

// PodConfig says how to make a pod. The zero value is a plain container with the host's own network configuration.
type PodConfig struct {
	ContainerID string // "" = random
	IfName      string // "" = eth0
	// Args are CNI_ARGS: {"K8S_POD_NAMESPACE", "default"}, …
	Args [][2]string
	// Capabilities become the runtimeConfig of the plugins that ask for them.
	Capabilities map[string]any
	ConfFile     string // a conflist; "" = the host's
}

// Pod is a namespace wired by the plugins.
type Pod struct {
	host *Host
	ns   Namespace
	rec  podRecord
}

// podRecord is the file pods/<name>.json.
type podRecord struct {
	Name   string           `json:"name"`
	Host   string           `json:"host"`
	Config PodConfig        `json:"config"`
	Result *types100.Result `json:"result,omitempty"` // nil if not added yet
}

// podPatience bounds one verb; it exceeds everything that a plugin waits for.
const podPatience = 3 * time.Minute

// Pod makes a pod. On an error the test ends; use AddPod outside tests.
func (h *Host) Pod(name string, cfg ...PodConfig) *Pod {
	var c PodConfig
	if len(cfg) > 0 {
		c = cfg[0]
	}
	p, err := h.AddPod(context.Background(), name, c)
	if err != nil {
		h.lab.fatal(err)
	}
	return p
}

// AddPod makes a namespace and lets the plugins wire it. If they fail, nothing is left: like a runtime, it calls DEL.
func (h *Host) AddPod(ctx context.Context, name string, cfg PodConfig) (*Pod, error) {
	if err := checkName("pod", name); err != nil {
		return nil, err
	}
	if cfg.ContainerID == "" {
		var id [16]byte
		rand.Read(id[:])
		cfg.ContainerID = hex.EncodeToString(id[:])
	}
	if cfg.IfName == "" {
		cfg.IfName = "eth0"
	}
	if cfg.ConfFile == "" {
		cfg.ConfFile = h.ConfFile()
	}
	p := &Pod{host: h, rec: podRecord{Name: name, Host: h.name, Config: cfg}}
	// What no plugin accepts, none would delete either.
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("add pod %s: %w", name, err)
	}
	if p, err := h.lab.FindPod(name); err == nil && !p.Exists() {
		return nil, fmt.Errorf("add pod %s: the name is taken by one that has gone with host %s: delete it first", name, p.rec.Host)
	}
	ns, err := createNamespace(h.lab.named(name).path)
	if err != nil {
		return nil, fmt.Errorf("add pod %s: %w", name, err)
	}
	p.ns = ns
	if err := p.save(); err != nil {
		return nil, errors.Join(err, p.forget())
	}
	if err := p.add(ctx); err != nil {
		// The caller's context may be the reason for the failure.
		return nil, errors.Join(fmt.Errorf("add pod %s on host %s: %w", name, h.name, err), p.Delete(context.WithoutCancel(ctx)))
	}
	return p, nil
}

func (p *Pod) add(ctx context.Context) error {
	list, rt, err := p.network()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	result, err := p.host.Runtime().AddNetworkList(ctx, list, rt)
	if err != nil {
		return err
	}
	if p.rec.Result, err = types100.NewResultFromResult(result); err != nil {
		return err
	}
	return p.save()
}

// check returns the problem that would affect every call of a plugin.
func (p *Pod) check() error {
	if _, _, err := p.network(); err != nil {
		return err
	}
	if err := utils.ValidateContainerID(p.rec.Config.ContainerID); err != nil {
		return fmt.Errorf("container id %q: %s", p.rec.Config.ContainerID, err.Msg)
	}
	if err := utils.ValidateInterfaceName(p.rec.Config.IfName); err != nil {
		return fmt.Errorf("interface name %q: %s", p.rec.Config.IfName, err.Msg)
	}
	return nil
}

// network returns the arguments for libcni.
func (p *Pod) network() (*libcni.NetworkConfigList, *libcni.RuntimeConf, error) {
	data, err := os.ReadFile(p.rec.Config.ConfFile)
	if err != nil {
		return nil, nil, err
	}
	list, err := libcni.NetworkConfFromBytes(data)
	if err != nil {
		return nil, nil, fmt.Errorf("network configuration %s: %w", p.rec.Config.ConfFile, err)
	}
	return list, &libcni.RuntimeConf{
		ContainerID: p.rec.Config.ContainerID, NetNS: p.ns.path, IfName: p.rec.Config.IfName,
		Args: p.rec.Config.Args, CapabilityArgs: p.rec.Config.Capabilities,
	}, nil
}

// Check lets the plugins compare the pod with what they made.
func (p *Pod) Check(ctx context.Context) error {
	list, rt, err := p.network()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	return p.host.Runtime().CheckNetworkList(ctx, list, rt)
}

// Delete lets the plugins unwire the pod, and removes it. If they fail, the pod stays on record for another try.
func (p *Pod) Delete(ctx context.Context) error {
	list, rt, err := p.network()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	if err := p.host.Runtime().DelNetworkList(ctx, list, rt); err != nil {
		return fmt.Errorf("delete pod %s: %w", p.rec.Name, err)
	}
	return p.forget()
}

// forget removes the pod's namespace without running the plugins.
func (p *Pod) forget() error {
	err := os.Remove(p.record())
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, p.ns.Remove())
}

func (p *Pod) record() string { return filepath.Join(p.host.lab.dir, "pods", p.rec.Name+".json") }

func (p *Pod) save() error { return writeJSON(p.record(), p.rec) }

// Name returns the pod's name, which is unique in the lab.
func (p *Pod) Name() string { return p.rec.Name }

// Host returns the host that the pod runs on.
func (p *Pod) Host() *Host { return p.host }

// ContainerID returns the CNI_CONTAINERID.
func (p *Pod) ContainerID() string { return p.rec.Config.ContainerID }

// Result returns the result of ADD.
func (p *Pod) Result() *types100.Result { return p.rec.Result }

// Namespace returns the pod's network namespace.
func (p *Pod) Namespace() Namespace { return p.ns }

// Addrs returns the addresses in the result of ADD.
func (p *Pod) Addrs() []netip.Addr {
	if p.rec.Result == nil {
		return nil
	}
	var addrs []netip.Addr
	for _, ip := range p.rec.Result.IPs {
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			addrs = append(addrs, a.Unmap())
		}
	}
	return addrs
}

// Exists reports whether the pod still has its namespace, which is gone after a reboot of its host.
func (p *Pod) Exists() bool { return p.ns.inode() != 0 }

// Do runs fn in the pod's network namespace; see Namespace.Do.
func (p *Pod) Do(fn func() error) error { return p.ns.Do(fn) }

// Exec runs a command in the pod and returns what it wrote to stdout.
func (p *Pod) Exec(ctx context.Context, command string, args ...string) ([]byte, error) {
	return run(ctx, p.ns, os.Environ(), command, args...)
}

// Start starts a command in the pod that runs until it is stopped or the lab is closed. role is its name in the lab.
func (p *Pod) Start(role, command string, args ...string) (*Process, error) {
	return p.host.lab.procs.startNamed(role, p.ns, os.Environ(), command, args)
}
