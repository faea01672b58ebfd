// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Kill makes a host look dead to others: it cuts the host's link and then kills the agent, so that not even the kernel
// closes its connections. Its lease in etcd expires and its BGP sessions time out. Its pods live on without a link: see
// Return and Reboot.
func (h *Host) Kill() error {
	_, gone := h.Agent().Process()
	err := h.fault(func(f *Faults) {
		f.HadAgent = f.HadAgent || gone == nil
		f.Dead = true
	})
	if err != nil {
		return err
	}
	err = h.Agent().Kill()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Return brings back a killed host with everything it had: disk, pods and kernel are unchanged, as in a virtual machine
// that was halted. It starts the agent and waits for it.
func (h *Host) Return(ctx context.Context) error {
	if err := h.dead(); err != nil {
		return err
	}
	return h.start(ctx)
}

// Reboot brings back a killed host as after a loss of power. Its name, its addresses and its disk (VarDir, LogDir, the
// plugins' cache) are unchanged; the contents of its kernel and RunDir, its pods' namespaces and every process of the
// lab in them are gone. The pods stay on record, as with a container runtime, which deletes the old containers: the
// caller must call Delete.
func (h *Host) Reboot(ctx context.Context) error {
	if err := h.dead(); err != nil {
		return err
	}
	pods, err := h.lab.Pods()
	if err != nil {
		return err
	}
	gone := []Namespace{h.ns}
	for _, p := range pods {
		if p.host.name == h.name {
			gone = append(gone, p.ns)
		}
	}
	if err := h.lab.procs.endIn(gone); err != nil {
		return fmt.Errorf("end what runs on host %s: %w", h.name, err)
	}
	if err := h.lab.fabric.unplug(h); err != nil {
		return err
	}
	for _, ns := range gone {
		if err := ns.Remove(); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(h.RunDir()); err != nil {
		return err
	}
	if err := os.MkdirAll(h.RunDir(), 0o755); err != nil {
		return err
	}
	if _, err := createNamespace(h.ns.path); err != nil {
		return err
	}
	if err := h.lab.fabric.plug(h); err != nil {
		return fmt.Errorf("connect host %s: %w", h.name, err)
	}
	if err := h.harass(ctx); err != nil {
		return fmt.Errorf("make host %s hostile: %w", h.name, err)
	}
	return h.start(ctx)
}

// dead returns an error if the host is alive.
func (h *Host) dead() error {
	f, err := h.Faults()
	if err == nil && !f.Dead {
		err = fmt.Errorf("host %s is not dead: kill it first", h.name)
	}
	return err
}

// start revives a host, with its agent if the lab starts agents or the host had one.
func (h *Host) start(ctx context.Context) error {
	agent := !h.lab.state.NoAgent
	err := h.fault(func(f *Faults) {
		agent = agent || f.HadAgent
		f.Dead, f.HadAgent = false, false
	})
	if err != nil || !agent {
		return err
	}
	return h.Agent().Start(ctx)
}
