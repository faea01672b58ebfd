// SPDX-License-Identifier: Apache-2.0

// Package controllers carries Kubernetes objects into etcd: namespaces and service accounts become profiles, NetworkPolicies and
// ClusterNetworkPolicies become policies, endpoints get the labels and ports of their pods, and the operator's resources are carried over.
//
// Watches of the API and of etcd give the desired and the actual state. One of several processes leads and writes the difference; the
// others know as much, and one of them takes over as soon as the leader ends. The controllers never delete what they didn't make, and
// delete nothing until they know everything that exists.
package controllers

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/calico-go/calico/pkg/controllers/availability"
	"github.com/calico-go/calico/pkg/controllers/custom"
	"github.com/calico-go/calico/pkg/controllers/endpoints"
	"github.com/calico-go/calico/pkg/controllers/fenced"
	"github.com/calico-go/calico/pkg/controllers/invalid"
	"github.com/calico-go/calico/pkg/controllers/owned"
	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/kube/leader"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
	"github.com/calico-go/calico/pkg/store"
)

// LeaseName is the name of the Lease for the leader election.
const LeaseName = "calico-controllers"

// protectionPrefix begins all keys of kubepolicy.Protection.
const protectionPrefix = model.Root + "v1/policy/tier/" + kubepolicy.ProtectionTier + "/"

// turn is how often the parts are checked for being stuck, and keys that wait for something are looked at again.
const turn = 10 * time.Second

// controllers holds the parts of the process.
type controllers struct {
	cfg     Config
	log     *slog.Logger
	kube    *kube.Client
	client  *store.Client
	health  *health.Monitor
	invalid *invalid.Objects
	metrics *metrics
	ledger  *problems.Ledger
	// etcd may be written by the leader only.
	etcd      *fenced.Store
	owned     *owned.Keeper
	hosts     *owned.Keeper // hosts' entries and the host endpoints of Nodes
	endpoints *endpoints.Keeper
	policies  *networkPolicies
	services  *services
	cluster   *clusterPolicies
	garbage   *collection
	custom    []*custom.Keeper // by kind
	agents    *custom.Agents
	// overwritten limits logging when another process keeps overwriting these controllers' keys.
	overwritten rate.Sometimes
	// leading functions run while this process leads, each until its context ends.
	leading []func(context.Context)
}

// Run runs the controllers until the context ends, or the settings in etcd change. It returns only configuration errors: it waits for servers
// that are away. cfg is what env's options set: etcd's settings take effect through them.
func Run(ctx context.Context, cfg *Config, env run.Env) error {
	return withBoth(ctx, *cfg, env, func(api *kube.Client, client *store.Client) error {
		group, ctx := errgroup.WithContext(ctx)
		served := serve(ctx, group, env, client)
		settings := make(chan map[string]string, 1)
		group.Go(func() error { return watchSettings(ctx, client, env, settings) })
		group.Go(func() error {
			if err := applySettings(ctx, env, settings); err != nil || ctx.Err() != nil {
				return err
			}
			return assemble(*cfg, env, api, client).run(ctx, served)
		})
		if err := group.Wait(); !errors.Is(err, errSettings) {
			return err
		}
		return nil
	})
}

func assemble(cfg Config, env run.Env, api *kube.Client, client *store.Client) *controllers {
	c := &controllers{
		cfg: cfg, log: env.Logger, kube: api, client: client, overwritten: rate.Sometimes{First: 100, Interval: 10 * time.Second},
		health: env.Health, metrics: newMetrics(env.Metrics), ledger: env.Problems, etcd: fenced.New(client, env.Logger),
	}
	c.invalid = invalid.New(c.log, api, c.ledger)
	keeper := func(what string) writer.Config {
		return writer.Config{Etcd: c.etcd, Problems: c.ledger, Reporter: c, What: what}
	}
	c.endpoints = endpoints.New(keeper("pods"))
	after := map[string]string{}
	if cfg.Enabled[Policies] {
		after[kindNamespace] = kindNetworkPolicy // namespaces' profiles allow everything
	}
	c.owned = owned.New(owned.Config{Config: keeper("policies and profiles"), Kinds: c.owns(), After: after, Needed: c.needed, Living: c.living})
	c.hosts = c.newHosts(keeper("hosts"))
	c.policies = newNetworkPolicies(c)
	c.cluster = newClusterPolicies(c)
	c.garbage = newCollection(c)
	if cfg.Enabled[Resources] {
		c.agents = custom.NewAgents()
		for _, kind := range resource.CustomKinds() {
			c.custom = append(c.custom, custom.New(custom.Config{
				Kind: kind, API: custom.Kubernetes{Client: api}, Agents: c.agents, Etcd: c.etcd, Problems: c.ledger, Reporter: c.invalid, PolicyLimit: cfg.NamespacePolicyLimit,
			}))
		}
	}
	c.leading = []func(context.Context){c.owned.Writer().Run, c.endpoints.Writer().Run}
	for _, k := range c.custom {
		c.leading = append(c.leading, k.Run)
	}
	if cfg.Enabled[Policies] {
		c.leading = append(c.leading, c.cluster.conditions.run, c.policies.lead)
	}
	if cfg.Enabled[Nodes] {
		nodes := availability.New(availability.Config{Etcd: client, API: availability.Kubernetes{Client: api, Namespace: cfg.LeaseNamespace}, Problems: c.ledger, Logger: c.log})
		c.leading = append(c.leading, nodes.Run, c.hosts.Writer().Run, c.garbage.run)
	}
	return c
}

// serviceAccountPrefix begins the names of service accounts' profiles.
var serviceAccountPrefix = strings.TrimSuffix(model.ServiceAccountProfile("", ""), ".")

// owns maps the path prefix of the keys that the enabled controllers may write and delete to the kind of their objects.
func (c *controllers) owns() map[string]string {
	all := map[string]string{}
	profile := func(kind, prefix string) { all[model.Root+"v1/policy/profile/"+prefix] = kind }
	if c.cfg.Enabled[Namespaces] {
		profile(kindNamespace, model.NamespaceProfile(""))
	}
	if c.cfg.Enabled[ServiceAccounts] {
		profile(kindServiceAccount, serviceAccountPrefix)
	}
	if c.cfg.Enabled[Policies] {
		all[model.PolicyKey{Tier: kubepolicy.PolicyTier, Policy: kubepolicy.PolicyPrefix}.Path()] = kindNetworkPolicy
		for _, tier := range []string{kubepolicy.AdminTier, kubepolicy.BaselineTier} {
			all[model.PolicyKey{Tier: tier, Policy: kubepolicy.ClusterPolicyPrefix}.Path()] = kindClusterPolicy
			all[model.TierKey{Tier: tier}.Path()] = kindTier
		}
		all[model.ServicePrefix()] = kindService
	}
	if c.cfg.Enabled[Nodes] {
		all[protectionPrefix] = kindProtection
	}
	return all
}

// needed reports whether a key stays although its object is gone. A profile stays while an endpoint uses it: without it the endpoint
// would have no access. A Node's host entry stays until the whole host goes, see package garbage. So does a host endpoint, unless
// these controllers made it and no ports are protected any more.
func (c *controllers) needed(e model.Entry) bool {
	switch k := e.Key.(type) {
	case model.HostMetadataKey:
		return true
	case model.HostEndpointKey:
		value, _ := e.Value.(model.HostEndpoint)
		return e.Exists() && !kubepolicy.IsNodeEndpoint(value)
	default:
		profile, is := profileOf(k)
		return is && c.endpoints.Uses(profile)
	}
}

func profileOf(k model.Key) (name string, is bool) {
	switch k := k.(type) {
	case model.ProfileRulesKey:
		return k.Profile, true
	case model.ProfileTagsKey:
		return k.Profile, true
	case model.ProfileLabelsKey:
		return k.Profile, true
	}
	return "", false
}

// Wrote implements writer.Reporter, as do Failed and Restored.
func (c *controllers) Wrote(of writer.Object, took time.Duration) {
	c.metrics.took.WithLabelValues(of.Kind).Observe(took.Seconds())
}

// Failed counts and logs a failed write.
func (c *controllers) Failed(of writer.Object, k model.Key, err error) {
	c.metrics.errors.WithLabelValues(of.Kind).Inc()
	c.log.Warn("a key of etcd could not be written, trying again later", "key", k.Path(), "err", err)
}

// reasonOverwritten is the reason of events about keys of etcd that were overwritten and restored.
const reasonOverwritten = "Overwritten"

// Restored reports a key that another process had changed or deleted.
func (c *controllers) Restored(of writer.Object, k model.Key) {
	c.metrics.overwritten.WithLabelValues(of.Kind).Inc()
	c.overwritten.Do(func() {
		c.log.Warn("a key of etcd that somebody else had changed or deleted was written again; the metric calico_controllers_overwritten_total counts all", "key", k.Path(), "kind", of.Kind, "namespace", of.Namespace, "name", of.Name)
	})
	if of.UID == "" {
		return // not an object of Kubernetes
	}
	about := corev1.ObjectReference{Kind: of.Kind, APIVersion: "v1", Namespace: of.Namespace, Name: of.Name, UID: types.UID(of.UID)}
	switch of.Kind {
	case kindNetworkPolicy:
		about.APIVersion = networkingv1.SchemeGroupVersion.String()
	case kindClusterPolicy:
		about.APIVersion = v1alpha2.GroupVersion.String()
	}
	c.kube.Warning(about, reasonOverwritten, "somebody else had changed or deleted "+k.Path()+" in etcd, and it was written again: change the object in Kubernetes instead")
}

// run runs the controllers, which don't lead before served is closed.
func (c *controllers) run(ctx context.Context, served <-chan struct{}) error {
	group, ctx := errgroup.WithContext(ctx)
	c.watch(ctx, group)
	group.Go(func() error { return c.turn(ctx) })
	group.Go(func() error {
		// Of two replicas on one node only one gets the ports. Only a replica that serves may lead, so the health and metrics that
		// can be reached are the leader's.
		select {
		case <-ctx.Done():
			return nil
		case <-served:
		}
		return leader.Run(ctx, c.kube.Leases(), leader.Config{
			Namespace: c.cfg.LeaseNamespace, Name: LeaseName, Identity: c.cfg.Identity, Logger: c.log,
		}, func(ctx context.Context) { c.etcd.Lead(ctx, c.cfg.Identity, c.holds, c.lead) })
	})
	return group.Wait()
}

// watch starts the watches of the enabled controllers.
func (c *controllers) watch(ctx context.Context, group *errgroup.Group) {
	on := c.cfg.Enabled
	begin := func(kind string, objects func() int, watch func(context.Context) error) {
		c.metrics.count(kind, objects, func() int { return c.invalid.Count(kind) })
		group.Go(func() error { return watch(ctx) })
	}
	owned := func(kind string, watch func(context.Context) error) {
		begin(kind, func() int { return c.owned.Objects(kind) }, watch)
	}
	former := func(kind string, watch func(context.Context) error) {
		begin(kind, func() int { return c.invalid.Count(kind) }, watch)
	}
	if on[Namespaces] {
		owned(kindNamespace, watchOwned(c, kindNamespace, kubepolicy.Namespace))
	}
	if on[ServiceAccounts] {
		owned(kindServiceAccount, watchOwned(c, kindServiceAccount, kubepolicy.ServiceAccount))
	}
	if on[Policies] {
		owned(kindNetworkPolicy, c.policies.watch)
		owned(kindClusterPolicy, c.watchClusterPolicies)
		group.Go(func() error { return c.policies.rereads.Run(ctx) })
		former(kindAdminPolicy, watchFormer[v1alpha1.AdminNetworkPolicy](c, kindAdminPolicy))
		former(kindBaselinePolicy, watchFormer[v1alpha1.BaselineAdminNetworkPolicy](c, kindBaselinePolicy))
		for _, tier := range kubepolicy.Tiers() {
			c.set(translation{about: corev1.ObjectReference{Kind: kindTier, Name: tier.Key.(model.TierKey).Tier}, puts: []model.Put{tier}})
		}
		c.owned.Synced(kindTier)
		c.services = newServices(c)
		c.watchEtcd(ctx, group, "rules", []string{model.Root + "v1/policy/"}, c.services.update)
		begin(kindService, func() int { return c.owned.Objects(kindService) }, c.services.run)
	}
	if on[Workloads] || on[Nodes] {
		begin(kindPod, c.endpoints.Pods, c.watchPods)
	}
	if on[Policies] || on[Nodes] {
		begin(kindNode, c.cluster.count, c.watchNodes)
		group.Go(func() error { return c.cluster.loop.Run(ctx) })
	}
	if prefixes := c.owned.Watched(); len(prefixes) > 0 {
		c.watchEtcd(ctx, group, "policy", prefixes, c.owned.Update)
	}
	if len(c.custom) > 0 {
		c.watchCustom(ctx, group, begin)
	}
	c.watchEtcd(ctx, group, "endpoints", []string{endpoints.Prefix}, func(u model.Update) {
		c.endpoints.Update(u)
		c.hosts.Update(ofNodes(u))
		c.cluster.update(u)
	})
}

// watchCustom starts the watches of the operator's resources.
func (c *controllers) watchCustom(ctx context.Context, group *errgroup.Group, begin func(kind string, objects func() int, watch func(context.Context) error)) {
	var prefixes []string
	for _, k := range c.custom {
		prefixes = append(prefixes, k.Watched()...)
		kind := k.Kind.Name + ".projectcalico.org" // Kubernetes has a NetworkPolicy as well
		begin(kind, k.Objects, func(ctx context.Context) error { return k.API.Watch(ctx, k.Kind, handler(c, kind, k.Handler())) })
	}
	c.watchEtcd(ctx, group, "agents", c.agents.Watched(), c.agents.Update)
	c.watchEtcd(ctx, group, "resources", prefixes, func(u model.Update) {
		for _, k := range c.custom {
			k.Update(u)
		}
	})
}

// watchEtcd passes the contents of etcd under prefixes, and each change, to update.
func (c *controllers) watchEtcd(ctx context.Context, group *errgroup.Group, what string, prefixes []string, update func(model.Update)) {
	part := "etcd: " + what
	c.health.Set(part, "etcd's "+what+" have not been read yet")
	group.Go(func() error {
		return c.client.Watch(ctx, prefixes, func(u model.Update) error {
			update(u)
			if u.Resync {
				c.health.Set(part, "")
			}
			return nil
		})
	})
}

// protect sets the policies that reserve protected ports for nodes, or lets them be deleted if there are no such ports. It is
// called once all nodes and their tunnels are known, and when they change: their endpoints go first.
func (c *controllers) protect(tunnels []netip.Addr) {
	if !c.cfg.Enabled[Nodes] {
		return
	}
	if ports := c.cfg.ProtectedPorts; len(ports) > 0 {
		if err := c.owned.Set(writer.Object{Kind: kindProtection}, kubepolicy.Protection(ports, tunnels)); err != nil {
			c.log.Error("ports of the nodes can't be protected: name fewer of them", "ports", len(ports), "err", err)
		}
	}
	c.owned.Synced(kindProtection)
}

// holds returns nil if the API says that this process holds the Lease.
func (c *controllers) holds(ctx context.Context) error {
	lease, err := kube.Get[coordinationv1.Lease](ctx, c.kube, c.cfg.LeaseNamespace, LeaseName)
	if err != nil {
		return err
	}
	if by := lease.Spec.HolderIdentity; by == nil || *by != c.cfg.Identity {
		return errors.New("the Lease " + c.cfg.LeaseNamespace + "/" + LeaseName + " is another's")
	}
	return nil
}

// lead does everything that only the leader does.
func (c *controllers) lead(ctx context.Context) {
	c.metrics.leader.Set(1)
	c.invalid.Lead(true)
	defer func() {
		c.metrics.leader.Set(0)
		c.invalid.Lead(false)
	}()
	var all sync.WaitGroup
	for _, run := range c.leading {
		all.Go(func() { run(ctx) })
	}
	all.Wait()
}

// turn checks, until the context ends, that no part is stuck, and rechecks keys that stayed because they were needed.
func (c *controllers) turn(ctx context.Context) error {
	tick := time.NewTicker(turn)
	defer tick.Stop()
	c.health.SetUnready("")
	for {
		c.endpoints.Pods()
		c.owned.Recheck() // profiles that no endpoint uses any more may go
		c.cluster.count()
		c.health.Turn()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// serve serves metrics and health. The returned channel is closed once health is served.
func serve(ctx context.Context, group *errgroup.Group, env run.Env, client *store.Client) <-chan struct{} {
	env.Health.Reads(client)
	if err, _ := env.Pages.Move(); err != nil {
		env.Logger.Warn("standing by: this process doesn't lead before it serves its health; most often another replica on this node does", "err", err)
	}
	group.Go(func() error { return env.Pages.Run(ctx) })
	return env.Pages.Served()
}
