// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/calico-go/calico/pkg/gate"
)

// agentRole is the prefix of the role of every agent.
const agentRole = "agent-"

// agentPatience bounds how long an agent may take to be ready.
const agentPatience = 90 * time.Second

// Agent is the agent of a host.
type Agent struct{ host *Host }

// Agent returns the host's agent, running or not.
func (h *Host) Agent() Agent { return Agent{h} }

// Start starts the agent and waits until it is ready to let pods start.
func (a Agent) Start(ctx context.Context) error {
	if err := a.Launch(); err != nil {
		return err
	}
	return a.Wait(ctx)
}

// Launch starts the agent without waiting.
func (a Agent) Launch() error {
	// An agent uses IPv6 with other hosts only if told to find its address. The machine's own cluster is not the lab's.
	env := append(append(os.Environ(), a.host.Env()...), "IP6=autodetect", "CALICO_KUBERNETES=off")
	state := &a.host.lab.state
	if !state.Hostile { // a lab shows only its own pods, from the start
		env = append(env, "FELIX_PROBEWORKLOADPATH=false")
	}
	s := spec{
		role: agentRole + a.host.name, ns: a.host.ns, path: filepath.Join(state.BinDir, "calico-node"),
		env: append(env, state.AgentEnv...), dir: a.host.dir(),
	}
	if state.Classic {
		s.path, s.args, s.env = filepath.Join(state.BinDir, "calico-classic"), []string{"felix"}, append(s.env, a.host.lab.classicEnv()...)
	}
	_, err := a.host.lab.procs.start(s)
	return err
}

// Wait waits until the agent is ready.
func (a Agent) Wait(ctx context.Context) error {
	p, err := a.Process()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, agentPatience)
	defer cancel()
	err = p.await(ctx, "the agent of host "+a.host.name, func() error { return a.Ready(ctx) })
	if err != nil && p.Alive() {
		err = fmt.Errorf("%w; its log, %s, says: %s", err, p.Log, Tail(p.Log, 5))
	}
	return err
}

// Ready asks the agent whether pods may start; nil means yes.
func (a Agent) Ready(ctx context.Context) error {
	return gate.Ping(ctx, a.host.AgentSocket(), a.host.name)
}

// Process returns the agent's process; the error is os.ErrProcessDone if it doesn't run.
func (a Agent) Process() (*Process, error) { return a.host.lab.procs.find(agentRole + a.host.name) }

// Stop asks the agent to end and waits until it has.
func (a Agent) Stop() error { return a.with(func(p *Process) error { return p.Stop(endPatience) }) }

// Kill kills the agent at once.
func (a Agent) Kill() error { return a.with((*Process).Kill) }

// Pause stops the agent until Resume. When Pause returns, it has stopped.
func (a Agent) Pause() error { return a.with((*Process).Pause) }

// Resume continues a paused agent.
func (a Agent) Resume() error { return a.with((*Process).Resume) }

func (a Agent) with(fn func(*Process) error) error {
	p, err := a.Process()
	if err != nil {
		return err
	}
	return fn(p)
}
