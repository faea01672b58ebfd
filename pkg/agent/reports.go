// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/agent/dhcpd"
	"github.com/calico-go/calico/pkg/agent/firewall"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/agent/workload"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// reports reports the status of endpoints and of objects in etcd: in etcd, on the pages for health and problems, in metrics and in the log.
type reports struct {
	log      *slog.Logger
	health   *health.Monitor
	report   *status.Reporter
	problems *problems.Ledger
	gauge    endpointGauge
	etcd     *etcdState
	workload *workload.Reconciler
	firewall *firewall.Reconciler
	// dhcp is told of each endpoint's status: the revision as of which it is up, 0 if it isn't.
	dhcp *dhcpd.Servers

	waiting      string              // why nothing is done, as it was logged
	invalid      map[string]struct{} // objects that only policy finds wrong
	linksUnknown bool                // the host's links could not be read
	undoing      map[string]error    // policies that make NetworkPolicies of Kubernetes ineffective
	absent       map[string]string   // missing interfaces that host endpoints name, by the endpoint's path
	ownerless    map[string]struct{} // see reportOwnerless
}

// changed reports on changed objects, except endpoints, which are yet to be decided on.
func (r *reports) changed(objects map[string]struct{}) {
	for path := range objects {
		switch o := r.etcd.objects[path]; o.key.(type) {
		case model.HostEndpointKey:
			r.firewall.ReportHost(path)
		case model.WorkloadEndpointKey:
		default:
			if r.workload.Target(path) == nil { // else it is a deleted workload endpoint
				r.problems.Report(path, o.invalid)
			}
		}
	}
}

// tell reports on endpoints that were decided on, and on host endpoints that changed.
func (r *reports) tell(paths map[string]struct{}) {
	for path := range paths {
		t := r.workload.Target(path)
		if t == nil {
			r.problems.Report(path, nil)
			r.report.Remove(path)
			r.gauge.set(path, "")
			r.reportOwnerless(path, false)
			continue
		}
		r.problems.Report(path, r.wrong(t))
		r.tellStatus(t)
	}
	r.tellHosts()
}

// tellFirewall reports on workload endpoints that the firewall covers now, or no longer does.
func (r *reports) tellFirewall(o firewall.Outcome) {
	if o.All {
		for _, t := range r.workload.Targets() {
			r.tellStatus(t)
		}
	}
	for _, path := range o.Changed {
		if t := r.workload.Target(path); t != nil {
			r.tellTarget(t)
		}
	}
}

// wrong returns what is wrong with a workload endpoint as stored in etcd, or with its interface; nil = nothing.
func (r *reports) wrong(t *workload.Target) error {
	return cmp.Or(t.Refused, r.firewall.Denies(t.Path), t.Untranslated, t.Fault())
}

// status returns the reported status of a workload endpoint: it is up when it is connected and protected.
func (r *reports) status(t *workload.Target) model.EndpointStatus {
	if s := t.Status(); s != model.EndpointUp || r.firewall.Stands(t.Path) == nil {
		return s
	}
	return model.EndpointError
}

// tellTarget reports on an endpoint whose state in the kernel changed.
func (r *reports) tellTarget(t *workload.Target) {
	r.problems.Report(t.Path, r.wrong(t))
	switch {
	case t.Applied:
		r.log.Debug("endpoint is programmed", "key", t.Path, "interface", t.Want.Interface, "revision", t.Revision)
	case workload.IsAbsent(t.Problem):
		r.log.Debug("endpoint has no interface yet", "key", t.Path, "reason", t.Problem)
	default:
		// Without a reason, the interface is merely still to be programmed.
		if reason := r.firewall.Stands(t.Path); reason != nil && t.Problem == nil {
			r.log.Warn("endpoint is not programmed", "key", t.Path, "reason", reason)
		}
	}
	r.tellStatus(t)
}

// tellStatus reports a workload endpoint's status.
func (r *reports) tellStatus(t *workload.Target) {
	status := r.status(t)
	r.report.Set(t.Path, t.Key, status)
	r.gauge.set(t.Path, status)
	r.reportOwnerless(t.Path, workload.IsAbsent(t.Problem) && t.Want.Container == "" && (t.Key.Orchestrator == "cni" || t.Key.Orchestrator == "k8s"))
	if status == model.EndpointUp {
		r.dhcp.Programmed(t.Path, t.Revision)
	} else {
		r.dhcp.Programmed(t.Path, 0)
	}
}

// reportOwnerless records whether an endpoint of a container names no container, as older versions of Calico wrote them, while its
// interface is gone or down. DEL and GC left it, as nothing says which container it belonged to.
func (r *reports) reportOwnerless(path string, is bool) {
	if _, was := r.ownerless[path]; was == is {
		return
	}
	about := "owner of " + path // the path alone is for its unknown fields
	if !is {
		delete(r.ownerless, path)
		r.problems.Note(problems.Notice, about, nil)
	} else {
		r.ownerless[path] = struct{}{}
		r.problems.Note(problems.Notice, about, errors.New("it names no container, and its interface isn't there or isn't up: nothing tells whose it is, so no DEL takes it away. "+
			"If its workload is gone, delete it, by the NAME that calicoctl get workloadendpoints -A shows: calicoctl delete workloadendpoint NAME -n NAMESPACE --force"))
	}
	r.gauge.ownerless.Set(float64(len(r.ownerless)))
}

// tellHealth sets whether the host is ready.
func (r *reports) tellHealth(frozen string) {
	switch {
	case frozen != "":
		r.health.SetUnready(frozen)
	case !r.workload.Applied():
		r.health.SetUnready("the host's workload interfaces have not been programmed yet")
	case r.firewall.Err() != nil:
		r.health.SetUnready(r.firewall.Err().Error())
	default:
		r.health.SetUnready("")
	}
}

// logWaiting logs what the agent waits for, once.
func (r *reports) logWaiting(reason string) {
	if reason == r.waiting {
		return
	}
	if reason == "" {
		r.log.Info(r.etcd.source+" has been read and is ready", "revision", r.etcd.revision)
	} else {
		r.log.Info("waiting; what is programmed stays as it is", "reason", reason)
	}
	r.waiting = reason
}

// tellHosts reports on the host endpoints that changed, or whose interface did.
func (r *reports) tellHosts() {
	hosts := r.firewall.TakeHosts()
	names := make(map[string]string, len(hosts))
	for path := range hosts {
		o, there := r.etcd.objects[path]
		ep := r.firewall.Host(path)
		absent := there && ep != nil && !ep.Wildcard && !slices.ContainsFunc(r.firewall.Interfaces(), func(i policy.Interface) bool { return i.Name == ep.Interface })
		switch {
		case !there:
			r.report.Remove(path)
		case o.invalid != nil || ep == nil:
			r.report.Set(path, o.key, model.EndpointError)
		case absent:
			r.report.Set(path, o.key, model.EndpointDown)
		case r.firewall.Stands(path) != nil:
			r.report.Set(path, o.key, model.EndpointError)
		default:
			r.report.Set(path, o.key, model.EndpointUp)
		}
		if names[path] = ""; absent && !r.linksUnknown {
			names[path] = ep.Interface // "" = on none, which reportInvalid says
		}
	}
	r.reportAbsent(names)
}

// reportAbsent reports, by host endpoint, the interface that it names and that doesn't exist; "" = none. It is a notice: the interface may
// be yet to come, and is closed then.
func (r *reports) reportAbsent(names map[string]string) {
	for path, name := range names {
		was := r.absent[path]
		if was == "" || was == name {
			continue
		}
		r.problems.Note(problems.Notice, "interface "+was, nil) // before another endpoint's that names it now
		delete(r.absent, path)
		r.log.Info("host endpoint names no interface any more that isn't there", "key", path, "interface", was)
	}
	for path, name := range names {
		if name == "" {
			continue
		}
		_, reason := r.problems.Note(problems.Notice, "interface "+name, fmt.Errorf("host endpoint %s names it, and this host has none of this name: "+
			"nothing is enforced before it has. If the name is wrong, correct it. The host has %s", path, r.interfaceNames()))
		if r.absent[path] != name {
			r.absent[path] = name
			r.log.Warn("host endpoint names an interface that isn't there", "key", path, "interface", name, "reason", reason)
		}
	}
}

// interfaceNames lists the host's own interfaces.
func (r *reports) interfaceNames() string {
	var names []string
	for _, i := range r.firewall.Interfaces() {
		names = append(names, i.Name)
	}
	slices.Sort(names)
	return cmp.Or(strings.Join(names, ", "), "none but workloads' and the loopback")
}

// reportInvalid reports what only policy finds wrong, such as an endpoint that names a missing profile, and everything about host
// endpoints, whose outcome policy knows.
func (r *reports) reportInvalid() {
	if r.firewall.Misfit() != nil {
		r.problems.Report("policy of this host", r.firewall.Misfit())
	}
	before := r.invalid
	r.invalid = map[string]struct{}{}
	for path, err := range r.firewall.Invalid() {
		o, there := r.etcd.objects[path]
		_, host := o.key.(model.HostEndpointKey)
		if there && (o.invalid != nil && !host || !r.etcd.concerns(o.key)) {
			continue // reported already, or by another host
		}
		r.invalid[path] = struct{}{}
		r.problems.Report(path, err)
	}
	for path := range before {
		if _, still := r.invalid[path]; !still && r.etcd.objects[path].invalid == nil {
			r.problems.Report(path, nil)
		}
	}
}

// reportUndoing notes the policies that make NetworkPolicies of Kubernetes ineffective. While older controllers' leftovers are among them
// the host isn't ready: what should be denied is open.
func (r *reports) reportUndoing() {
	before := r.undoing
	r.undoing = map[string]error{}
	var left []string
	note := func(key model.PolicyKey, whose, does string) {
		path := key.Path()
		remedy := whose + ": delete it, unless one still runs or it is meant so: calicoctl delete globalnetworkpolicy " + key.Policy
		if r.etcd.left(key) {
			left = append(left, key.Policy)
			remedy = "older controllers left it. " + removesOlder
		}
		r.undoing[path] = fmt.Errorf("%s. It %s, so that NetworkPolicies of Kubernetes deny nothing by default there", remedy, does)
		if was, is := r.problems.Note(problems.Notice, path, r.undoing[path]); was == "" {
			r.log.Warn("NetworkPolicies have no effect beside a policy", "key", path, "reason", is)
		}
	}
	if _, there := r.etcd.objects[kubepolicy.NoMatch.Path()]; there {
		note(kubepolicy.NoMatch, "older controllers leave it", "passes all pods on to their profiles")
	}
	for key, endpoint := range r.firewall.Undoing() {
		note(key, "it is named as older controllers name those of NetworkPolicies", "lets everything pass, for instance at "+endpoint)
	}
	for path := range before {
		if r.undoing[path] == nil {
			r.problems.Note(problems.Notice, path, nil)
			r.log.Info("policy doesn't undo NetworkPolicies any more", "key", path)
		}
	}
	unready := ""
	if len(left) > 0 {
		unready = fmt.Sprintf("NetworkPolicies of Kubernetes have no effect beside what older controllers left (%s, %d in all). %s", slices.Min(left), len(left), removesOlder)
	}
	r.health.SetDegraded("older controllers", unready)
}

// removesOlder is the advice about policies that older controllers left.
const removesOlder = "When none of them runs any more, calicoctl datastore migrate removes it; see first what it would remove: calicoctl datastore migrate --dry-run"
