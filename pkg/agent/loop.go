// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/agent/connections"
	"github.com/calico-go/calico/pkg/agent/firewall"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/workload"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/serving"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
)

const (
	// beatInterval is how often an idle loop shows that it is alive.
	beatInterval = 10 * time.Second
	// updateBuffer is how many updates may queue up during one turn.
	updateBuffer = 256
)

// loop drives the reconcilers of workloads and the firewall, in one goroutine: it takes in all queued events, lets each reconciler decide,
// applies the firewall first, and answers at the gate. A workload is connected only once the firewall covers it.
type loop struct {
	parts

	log      *slog.Logger
	system   system
	health   *health.Monitor
	problems *problems.Ledger
	serving  *serving.Servers

	updates chan model.Update
	asks    chan func() bool // functions that the loop runs for others; they report whether a turn must follow
	stopped chan struct{}    // closed when the loop has ended
	gate    waiters

	params         params.Params
	interfaceRetry time.Duration
	adoption       *params.Adoption
	reached        *problems.Group // workloads that reached their limit of connections
	unsettled      bool            // settings in etcd changed

	etcd        *etcdState
	workload    *workload.Reconciler
	mtu         *workload.Shrinker
	firewall    *firewall.Reconciler
	connections *connections.Cutter
	links       links
	router      routerState
	reports     reports
	audits      [3]periodic
	beside      sync.WaitGroup
}

// start creates the reconcilers and opens the kernel for them.
func (l *loop) start(ctx context.Context) error {
	l.workload = workload.New(workload.Config{
		Host: l.etcd.host, Prefixes: l.params.InterfacePrefixes, Open: l.system.kernel.Workloads, Logger: l.log, Problems: l.problems, Metrics: l.metrics.workload, Retry: l.interfaceRetry,
	})
	l.workload.SetLoopback(l.params.Firewall().Metadata.Addr().IsLoopback())
	l.firewall = firewall.New(firewall.Config{
		Host: l.etcd.host, Open: l.system.kernel.Firewall, Alive: l.health.Turn, Roles: l.system.kernel.Roles, Logger: l.log, Metrics: l.metrics.firewall,
	})
	l.reports = reports{
		log: l.log, health: l.health, report: l.report, problems: l.problems, gauge: l.metrics.endpoints,
		etcd: l.etcd, workload: l.workload, firewall: l.firewall, dhcp: l.dhcp, absent: map[string]string{}, ownerless: map[string]struct{}{},
	}
	if err := l.workload.Open(ctx); err != nil {
		return err
	}
	if err := l.firewall.Open(ctx, l.params.Firewall()); err != nil {
		l.workload.Close()
		return err
	}
	l.connections = connections.New(connections.Config{
		Firewall: l.firewall.Table(), Policy: l.firewall.Enforced, Tracker: l.system.tracker, Metrics: l.metrics.connections, Wake: l.wake, Logger: l.log,
	})
	return nil
}

// close closes the kernel if start opened it.
func (l *loop) close() {
	if l.connections == nil {
		return
	}
	l.workload.Close()
	if err := l.firewall.Close(); err != nil {
		l.log.Warn("the firewall's socket was not closed", "err", err)
	}
}

// run takes turns until the context ends. What is programmed stays.
func (l *loop) run(ctx context.Context) error {
	defer close(l.stopped)
	if err := l.start(ctx); err != nil {
		return err
	}
	l.beside.Go(func() { l.connections.Run(ctx) })
	if l.system.forward != nil {
		l.beside.Go(func() { l.system.forward.Run(ctx) })
	}
	if l.system.probe != nil {
		l.beside.Go(func() { l.system.probe.Run(ctx) })
	}
	l.readInterfaces()
	l.unsettled = l.adoption.Review() // links may have come after prefixes were judged and before they were watched
	l.reserve()
	l.writeMTU()
	l.reports.tellHealth(l.frozenBy())
	l.report.Naming.Notify(l.wake.Send)
	now := time.Now()
	l.audits = [...]periodic{{l.params.RefreshInterval, now}, {l.params.FirewallInterval, now}, {beatInterval, now}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l.health.Turn()
		timer.Reset(time.Until(l.next()))
		turn := true
		select {
		case <-ctx.Done():
			return nil
		case u := <-l.updates:
			l.fold(u)
		case e, ok := <-l.workload.Events():
			l.note(e, ok)
		case _, ok := <-l.firewall.Tampered():
			l.firewall.Note(ok)
		case ask := <-l.asks:
			turn = ask()
		case <-l.wake:
			l.take()
		case <-timer.C:
			turn = l.due(time.Now())
		}
		if !turn {
			continue
		}
		l.health.Turn()
		l.etcd.disconnected = l.health.Disconnected(0) != "" // read before the updates that would end it
		l.drain()
		if err := l.turn(ctx); err != nil {
			return err
		}
		l.audits[ofWorkloads].set(l.params.RefreshInterval)
		l.audits[ofFirewall].set(l.params.FirewallInterval)
	}
}

// take takes what others have left in the loop's mailboxes.
func (l *loop) take() {
	l.noteNews()
	l.mtu.End()
	if l.system.probe != nil {
		l.connectProbe()
	}
}

// drain takes in everything queued, so that a burst is applied at once.
func (l *loop) drain() {
	for range updateBuffer {
		select {
		case u := <-l.updates:
			l.fold(u)
		case ask := <-l.asks:
			ask()
		default:
			return
		}
	}
}

// fold takes in what changed in etcd.
func (l *loop) fold(u model.Update) {
	if u.Resync {
		l.reserve() // addresses of etcd that are workloads' may be known now
		l.metrics.resyncs.Inc()
	}
	c := l.etcd.fold(u)
	l.workload.Update(c.entries...)
	l.firewall.Update(c.entries...)
	l.unsettled = l.unsettled || c.settings
	l.reports.changed(c.objects)
}

// note takes in an event of the kernel.
func (l *loop) note(e hostpath.Event, ok bool) {
	l.workload.Note(e, ok)
	if !ok || e.All {
		l.firewall.SetIndexes(l.workload.AllIndexes())
	} else {
		l.firewall.SetIndexes(l.workload.Indexes(e.Interfaces))
	}
	if e.All || len(e.Interfaces) > 0 {
		l.mtu.Changed()
	}
	if e.All || e.Host {
		l.handover.Look()
		l.look()
	}
}

// audit makes the reconcilers read again everything that the agent keeps right. The host's own interfaces are not included: the kernel
// sends an event for each change of a link or an address, and when it says that events were lost they are read too.
func (l *loop) audit() {
	l.writeNode()
	l.reserve()
	l.writeMTU()
	l.workload.Audit()
	l.mtu.Audit()
}

// writeNode keeps the file that gives the plugin the node's name, and tells it that there is an agent to wait for.
func (l *loop) writeNode() {
	l.problems.Tell(problems.Host, "the node's name for the plugin", l.system.files.writeNode())
}

// frozenBy says what must be known before anything is done; "" = nothing.
func (l *loop) frozenBy() string { return cmp.Or(l.etcd.waitsFor(), l.report.Naming.Get()) }

// turn acts on what has been taken in.
func (l *loop) turn(ctx context.Context) error {
	reason := l.frozenBy()
	l.reports.logWaiting(reason)
	// Settings say how to find out who owns the name, and change nothing before anything is programmed.
	if reason == "" || l.etcd.waitsFor() == "" && !l.workload.Applied() {
		if err := l.settle(ctx); err != nil {
			return err
		}
	}
	var c workload.Change
	if reason == "" {
		c = l.decide()
	}
	// While frozen, the former desired state stays and is kept repaired: emptying etcd cuts nothing off.
	if (reason == "" || l.workload.Applied()) && !l.awaitsTunnels() {
		l.enforce(ctx, c)
	}
	l.lose(c.Lost) // only once nothing leads there any more: packets that still pass would be tracked again
	if reason == "" {
		l.workload.ReportStale()
	}
	if reason == "" && !l.awaitsTunnels() && l.firewall.Settled() {
		l.report.Filtered(l.etcd.revision)
	}
	l.answer()
	l.reports.tell(c.Paths)
	l.reports.tellHealth(reason)
	l.mtu.Begin(ctx, l.workload.Path())
	l.connections.Add(l.firewall.TakeWork()) // last: it competes for CPU with pods that wait for the gate
	return nil
}

// decide makes the reconcilers work out what follows from etcd.
func (l *loop) decide() workload.Change {
	c := l.workload.Decide()
	verdicts := make(map[string]firewall.Verdict, len(c.Paths))
	for path := range c.Paths {
		v := firewall.Verdict{Outside: l.workload.Outside(path)}
		if t := l.workload.Target(path); t != nil && t.Refused == nil {
			v.Connect, v.Active, v.Addrs, v.Untranslated = true, t.Want.Active, t.Want.Addrs, t.Untranslated != nil
		}
		verdicts[path] = v
	}
	l.firewall.Take(verdicts)
	l.firewall.SetIndexes(l.workload.Indexes(l.firewall.Decide()))
	l.reports.reportInvalid()
	l.reports.reportUndoing()
	l.adoption.SayMisfit(l.workload.Misfit())
	return c
}

// enforce programs the kernel, the firewall first: until it has been applied once, nothing is connected. Only workloads that are new, or
// unchanged, are connected in parallel with it: the firewall drops what it doesn't know.
func (l *loop) enforce(ctx context.Context, c workload.Change) {
	first := !l.workload.Applied()
	task := l.workload.Begin(c)
	beside := task != nil && task.Fresh && l.firewall.Applied() && l.firewall.Err() == nil && !l.firewall.Suspicious()
	var done chan workload.Result
	if beside {
		done = make(chan workload.Result, 1)
		go func() { done <- task.Do(ctx) }()
	}
	l.reports.tellFirewall(l.firewall.Apply(ctx))
	if l.firewall.Applied() {
		l.tellStands()
	} else {
		return
	}
	var result workload.Result
	switch {
	case task == nil:
		return
	case beside:
		result = <-done
	default:
		result = task.Do(ctx)
	}
	changed, lost := l.workload.End(ctx, result)
	l.lose(lost)
	if first && l.workload.Applied() {
		l.report.FirstUpdate()
	}
	for _, t := range changed {
		l.reports.tellTarget(t)
	}
}

// settle applies the settings in etcd, and tells the router.
func (l *loop) settle(ctx context.Context) error {
	if !l.unsettled {
		l.configureRouter()
		return nil
	}
	l.unsettled, l.router.configured = false, false
	before := l.params.InterfacePrefixes
	l.adopt()
	l.configureRouter()
	l.firewall.Configure(l.params.Firewall())
	l.workload.SetLoopback(l.params.Firewall().Metadata.Addr().IsLoopback())
	prefixes := l.params.InterfacePrefixes
	if slices.Equal(before, prefixes) {
		return nil
	}
	l.readInterfaces()
	l.log.Info("workload interfaces have other prefixes now", "prefixes", prefixes)
	lost, err := l.workload.SetPrefixes(ctx, prefixes)
	if err != nil {
		return err
	}
	l.lose(lost)
	l.firewall.SetIndexes(l.workload.AllIndexes())
	l.links.again = time.Now() // no event says what became of the host's own links since the prefixes were judged
	return nil
}

// tellReached reports the workloads that reached their limit of connections.
func (l *loop) tellReached() {
	bounds, err := l.firewall.Reached()
	if err != nil {
		l.log.Warn("trying again", "err", err)
		return
	}
	found := map[string]string{}
	for path, bound := range bounds {
		found[path] = fmt.Sprintf("it begins connections beyond the %d that it may have, which are dropped: have it keep fewer, or raise "+
			"MaxConnectionsPerEndpoint (where the agent's environment has it: FELIX_MAXCONNECTIONSPERENDPOINT) and, where the pod has it, the annotation cni.projectcalico.org/maxConnections", bound)
	}
	for _, path := range l.reached.Set(found) {
		if key, ok := l.etcd.objects[path].key.(model.WorkloadEndpointKey); ok && l.warnPod != nil {
			l.warnPod(key, "TooManyConnections", found[path])
		}
	}
}

// lose deletes the connections of addresses that lead elsewhere now, or nowhere.
func (l *loop) lose(addrs []netip.Addr) { l.connections.Add(board.Doubts{Lost: addrs}) }
