// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/agent/connections"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// firewall is what the loop drives: nft.Firewall.
type firewall interface {
	Configure(policy.Settings)
	Update(policy.Changes)
	Tunnels(policy.Tunnels)
	Links(indexes map[string]int)
	connections.Firewall
	Apply(context.Context) (nft.Report, error)
	Audit()
	Subscribe(context.Context) (<-chan nft.Event, error)
	Close() error
}

// fence brings the firewall in line. It goes first: while it has never stood,
// nothing is connected, and what it doesn't know yet passes nothing.
func (l *loop) fence(ctx context.Context, now time.Time) bool {
	w := l.wall
	l.auditTampered(now)
	report, err := l.firewall.Apply(ctx)
	if err != nil && ctx.Err() != nil {
		return false // the agent stops
	}
	if err != nil {
		err = fmt.Errorf("firewall: %w", err)
	}
	changed := problems.Reason(w.err) != problems.Reason(err)
	if changed {
		if err == nil {
			l.log.Info("the firewall is in order again")
		} else {
			l.log.Error("the firewall could not be brought in line, trying again", "err", err)
		}
	}
	if w.err = err; err != nil {
		l.again()
	}
	if changed {
		for _, t := range l.desired.targets {
			l.tellStatus(t)
		}
		for path, ep := range w.found {
			if !ep.Workload {
				w.hosts[path] = struct{}{}
			}
		}
	}
	if report.Writes > 0 || report.Whole || err != nil {
		scope := "some"
		if report.Whole {
			scope = "whole"
		}
		l.metrics.firewall.applySeconds.WithLabelValues(scope).Observe(time.Since(now).Seconds())
		l.metrics.firewall.read(report, w)
	}
	if report.Repairs > 0 {
		w.work.Hole = true // what began while the firewall had a hole runs on as established
		l.sayRepaired(report.Repairs, now)
	}
	for path, problem := range report.Programmed {
		t := l.desired.targets[path]
		if problem == nil {
			problem = w.denies(t)
		}
		if problems.Reason(problem) == problems.Reason(w.failing[path]) {
			continue
		}
		if problem == nil {
			delete(w.failing, path)
		} else {
			w.failing[path] = fmt.Errorf("firewall: %w", problem)
		}
		if t != nil {
			l.problems.Report(path, l.wrong(t))
			l.tellTarget(t)
		} else {
			w.hosts[path] = struct{}{}
		}
	}
	if err == nil && !w.applied {
		w.applied = true
		w.work.Hole = true
		l.log.Info("the firewall stands", "endpoints", len(w.state.Endpoints), "rules", report.Rules, "members", report.Members, "changes", report.Writes, "took", time.Since(now))
	}
	return w.applied
}

// repairsPause is for how long repairs of the firewall are counted before the next is logged: a
// fight with another program is one of dozens a second.
const repairsPause = time.Minute

// repairs are those of the firewall that are not logged yet, and when some were.
type repairs struct {
	changes int
	said    time.Time
}

// sayRepaired logs that the firewall was found other than it was left: somebody else has changed it,
// or a change that failed took effect in part.
func (l *loop) sayRepaired(changes int, now time.Time) {
	r := &l.repairs
	if now.Sub(r.said) >= 2*repairsPause {
		r.changes = 0 // they are of a fight that ended
	}
	if r.changes += changes; now.Sub(r.said) < repairsPause {
		return
	}
	l.log.Warn("repaired the firewall, which was not as it was left; connections that began meanwhile are judged again", "table", "inet "+nft.TableName, "changes", r.changes)
	*r = repairs{said: now}
}

// openFirewall opens the firewall and subscribes to what others do to it.
func (l *loop) openFirewall(ctx context.Context) error {
	fw, err := l.system.openFirewall(l.health.Turn)
	if err != nil {
		return fmt.Errorf("open the firewall: %w", err)
	}
	l.firewall = fw
	l.configureFirewall()
	// First: where others change their own tables all the time, large sets can be read only
	// as it is known that ours are not what changes.
	if l.tampered, err = fw.Subscribe(ctx); err != nil {
		_ = fw.Close() // nothing was written
		return fmt.Errorf("subscribe to changes of the firewall: %w", err)
	}
	return nil
}

// configureFirewall takes the settings that bear on packets into use.
func (l *loop) configureFirewall() {
	s := l.params.Firewall()
	if reflect.DeepEqual(s, l.wall.settings) {
		return
	}
	l.wall.mu.Lock()
	l.wall.settings = s
	l.wall.mu.Unlock()
	l.wall.work.All = true
	l.wall.engine.SetPrefixes(s.Prefixes)
	l.firewall.Configure(s)
}

// noteTampering takes in that somebody else changed the firewall.
func (l *loop) noteTampering(ok bool) {
	if !ok {
		l.tampered = nil // the timer remains
		return
	}
	l.suspicious = true
}

// auditTampered has the whole firewall read where somebody else changed it, but not as
// often as a fight with another program would want.
func (l *loop) auditTampered(now time.Time) {
	if !l.suspicious {
		return
	}
	if since := now.Sub(l.lastAudit); since < driftPause {
		l.retry.Reset(driftPause - since)
		return
	}
	l.suspicious, l.lastAudit = false, now
	l.firewall.Audit()
}

// readInterfaces learns the host's own interfaces, which host endpoints are found by.
func (l *loop) readInterfaces() {
	found, err := l.system.interfaces(l.params.InterfacePrefixes)
	if err != nil {
		l.lookAgain.Reset(retryPause)
	}
	if l.overtaken.interfaces.Hide(err, time.Now()) {
		l.log.Debug("the host's interfaces changed while they were read, trying again", "err", err)
		return
	}
	if text := problems.Reason(err); text != l.interfaceProblem {
		if err != nil {
			l.log.Warn("the host's interfaces could not be read; host endpoints stay on those that were known", "err", err)
		}
		l.interfaceProblem = text
	}
	if err != nil {
		return
	}
	interfaces, own := make([]policy.Interface, 0, len(found)), map[netip.Addr]string{}
	for _, f := range found {
		for _, a := range f.Addrs {
			own[a] = f.Name
		}
		if !f.Loopback {
			interfaces = append(interfaces, policy.Interface{Name: f.Name, Addrs: f.Addrs})
		}
	}
	maps.Copy(l.dirty, l.state.setOwn(own).endpoints)
	if !slices.EqualFunc(interfaces, l.wall.interfaces, func(a, b policy.Interface) bool {
		return a.Name == b.Name && slices.Equal(a.Addrs, b.Addrs)
	}) {
		l.wall.mu.Lock()
		l.wall.interfaces = interfaces
		l.wall.mu.Unlock()
		l.wall.engine.SetInterfaces(interfaces)
		for path, ep := range l.wall.found {
			if !ep.Workload {
				l.wall.hosts[path] = struct{}{} // it may be there now, or no longer
			}
		}
	}
}

// readNeeded learns the addresses of what the host can't do without.
func (l *loop) readNeeded() {
	needed := map[netip.Addr]string{}
	if l.route.news != nil {
		for a, link := range l.route.news.Routers {
			needed[a] = "the router on " + link
		}
	}
	if l.etcdAddrs != nil {
		for _, a := range l.etcdAddrs() {
			needed[a] = "etcd"
		}
	}
	maps.Copy(l.dirty, l.state.setNeeded(needed).endpoints)
}

// sayInvalid reports what only policy finds wrong, such as a profile that an
// endpoint names and that isn't there, and all about host endpoints, as it knows what became of them.
func (l *loop) sayInvalid() {
	if l.wall.misfit != nil {
		l.problems.Report("policy of this host", l.wall.misfit)
	}
	before := l.wall.invalid
	l.wall.invalid = map[string]struct{}{}
	for path, err := range l.wall.engine.Invalid() {
		o, there := l.state.objects[path]
		_, host := o.key.(model.HostEndpointKey)
		if there && (o.invalid != nil && !host || !l.state.concerns(o.key)) {
			continue // reported already, or another host's to report
		}
		l.wall.invalid[path] = struct{}{}
		l.problems.Report(path, err)
	}
	for path := range before {
		if _, still := l.wall.invalid[path]; !still && l.state.objects[path].invalid == nil {
			l.problems.Report(path, nil)
		}
	}
}
