// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/calico-go/calico/pkg/gate"
)

// agentRole begins the role of every agent.
const agentRole = "agent-"

// agentPatience bounds how long an agent may take to be ready.
const agentPatience = 90 * time.Second

// StartAgent starts the host's agent and waits until it is ready to let pods start.
func (h *Host) StartAgent(ctx context.Context) error {
	if err := h.LaunchAgent(); err != nil {
		return err
	}
	return h.WaitAgent(ctx)
}

// LaunchAgent starts the host's agent and does not wait.
func (h *Host) LaunchAgent() error {
	// An agent speaks no IPv6 to other hosts unless it is told to find its address.
	env := append(append(os.Environ(), h.Env()...), "IP6=autodetect")
	_, err := h.lab.spawn(spec{
		role: agentRole + h.name, ns: h.ns,
		path: filepath.Join(h.lab.state.BinDir, "calico-node"),
		env:  append(env, h.lab.state.AgentEnv...), dir: h.dir(),
	})
	return err
}

// WaitAgent waits until the agent is ready.
func (h *Host) WaitAgent(ctx context.Context) error {
	p, err := h.Agent()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, agentPatience)
	defer cancel()
	var dead error
	err = until(ctx, "agent of host "+h.name, func() (bool, error) {
		if !p.Alive() {
			dead = fmt.Errorf("the agent of host %s ended", h.name)
			return true, nil
		}
		err := h.AgentReady(ctx)
		return err == nil, err
	})
	if err = errors.Join(err, dead); err != nil {
		return fmt.Errorf("%w; its log, %s, says: %s", err, p.Log, Tail(p.Log, 5))
	}
	return nil
}

// AgentReady asks the agent whether pods may start; nil is yes.
func (h *Host) AgentReady(ctx context.Context) error {
	return gate.Ping(ctx, h.AgentSocket(), h.Name())
}

// Agent is the process of the host's agent; os.ErrProcessDone where it doesn't run.
func (h *Host) Agent() (*Process, error) {
	return h.lab.process(agentRole + h.name)
}

// StopAgent asks the agent to end and waits until it has.
func (h *Host) StopAgent() error {
	return h.withAgent(func(p *Process) error { return p.Stop(endPatience) })
}

// KillAgent kills the agent at once.
func (h *Host) KillAgent() error { return h.withAgent((*Process).Kill) }

// PauseAgent stops the agent in its tracks, which it has done when this returns,
// until ResumeAgent.
func (h *Host) PauseAgent() error { return h.withAgent((*Process).Pause) }

// ResumeAgent lets a paused agent go on.
func (h *Host) ResumeAgent() error { return h.withAgent((*Process).Resume) }

func (h *Host) withAgent(fn func(*Process) error) error {
	p, err := h.Agent()
	if err != nil {
		return err
	}
	return fn(p)
}
