// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// Severity is that of the least important lines of a log.
type Severity string

// UnmarshalText accepts any case.
func (s *Severity) UnmarshalText(text []byte) error { return word(s, text, s.words()) }

func (Severity) words() []string { return []string{"Debug", "Info", "Warning", "Error"} }

// KubeControllersConfiguration configures the controllers.
type KubeControllersConfiguration struct {
	Controllers           *Controllers `json:"controllers,omitempty" doc:"The controllers that run: those that it names. Default: all. ENABLED_CONTROLLERS of calico-controllers wins."`
	LogSeverityScreen     Severity     `json:"logSeverityScreen,omitempty" doc:"The least severity that is logged. Default Info. LOG_LEVEL wins."`
	PrometheusMetricsPort *int         `json:"prometheusMetricsPort,omitempty" range:"0,65535" doc:"TCP port of metrics, 0 = none. Default 9094. CALICO_METRICS_ADDRESS wins."`

	HealthChecks           string `json:"healthChecks,omitempty" only:"Enabled" refused:"the Deployment's probes need them; without probes set CALICO_HEALTH_ADDRESS to 0"`
	EtcdV3CompactionPeriod string `json:"etcdV3CompactionPeriod,omitempty" only:"10m|0s" refused:"etcd compacts itself: set its auto-compaction-retention"`
	DebugProfilePort       int    `json:"debugProfilePort,omitempty" refused:"no profiles are served"`
}

// Controllers are the controllers that run.
type Controllers struct {
	Node             *NodeController         `json:"node,omitempty" input:"optional" doc:"Keeps what etcd has of Nodes, and frees what nodes and pods that are gone have left."`
	Policy           *Controller             `json:"policy,omitempty" input:"optional" doc:"Carries Kubernetes' policies."`
	WorkloadEndpoint *Controller             `json:"workloadEndpoint,omitempty" input:"optional" doc:"Gives endpoints the labels and ports of their pods."`
	ServiceAccount   *Controller             `json:"serviceAccount,omitempty" input:"optional" doc:"Makes the profiles of service accounts, without which their pods don't start."`
	Namespace        *Controller             `json:"namespace,omitempty" input:"optional" doc:"Makes the profiles of namespaces, without which their pods don't start."`
	LoadBalancer     *LoadBalancerController `json:"loadBalancer,omitempty" input:"optional" doc:"Without effect: services get no addresses, as no IPPool has allowedUses LoadBalancer."`
	PolicyMigration  *MigrationController    `json:"policyMigration,omitempty" input:"optional" doc:"Without effect: policies keep their names."`
}

// Controller has no settings.
type Controller struct {
	ReconcilerPeriod string `json:"reconcilerPeriod,omitempty" only:"5m" refused:"changes are acted upon as they happen"`
}

// NodeController has settings of the controller node that have one value each.
type NodeController struct {
	ReconcilerPeriod string            `json:"reconcilerPeriod,omitempty" only:"5m" refused:"changes are acted upon as they happen"`
	SyncLabels       string            `json:"syncLabels,omitempty" only:"Enabled" refused:"hosts have the labels of their Nodes"`
	HostEndpoint     *AutoHostEndpoint `json:"hostEndpoint,omitempty" input:"optional" doc:"Host endpoints of all Nodes."`
	LeakGracePeriod  string            `json:"leakGracePeriod,omitempty" only:"15m" refused:"the time is fixed"`
}

// AutoHostEndpoint says that no host endpoints are made.
type AutoHostEndpoint struct {
	AutoCreate    string   `json:"autoCreate,omitempty" only:"Disabled" refused:"no host endpoints are made of Nodes, but by PROTECTED_HOST_PORTS: apply them"`
	CreateDefault string   `json:"createDefaultHostEndpoint,omitempty" only:"Enabled|Disabled" refused:"without autoCreate none is made"`
	Templates     []string `json:"templates,omitempty" only:"[]" refused:"no host endpoints are made of templates: apply them"`
}

// LoadBalancerController gives no addresses.
type LoadBalancerController struct {
	AssignIPs string `json:"assignIPs,omitempty" only:"AllServices" refused:"services get no addresses, as no IPPool has allowedUses LoadBalancer"`
}

// MigrationController renames no policies.
type MigrationController struct {
	Enabled string `json:"enabled,omitempty" only:"Enabled|Disabled" refused:"policies keep their names"`
}

var kubeControllersConfigurationKind = newKind(one(readControllersConfig), writeControllersConfig, Kind{
	Name: "KubeControllersConfiguration", Plural: "KubeControllersConfigurations", Aliases: []string{"kubecontrollersconfig", "kubecontrollersconfigs", "kcc"},
	ranges: keyRanges(model.ControllersConfigKey{}), of: keyed[model.ControllersConfigKey], always: isDefault,
	custom: &custom{short: []string{"kcc"}, columns: []string{"Log", "logSeverityScreen", "Metrics", "prometheusMetricsPort"}, rules: onlyDefault},
	fields: map[string]string{"disabled": "controllers"},
	Columns: []Column{
		cell("DISABLED", false, func(c *KubeControllersConfiguration) string { return strings.Join(c.disabled(), ",") }),
		cell("LOGSEVERITYSCREEN", false, func(c *KubeControllersConfiguration) string { return cmp.Or(string(c.LogSeverityScreen), "Info") }),
	},
})

// disabled returns the names of the controllers that don't run.
func (c *KubeControllersConfiguration) disabled() []string {
	of := c.Controllers
	if of == nil {
		return nil
	}
	on := map[string]bool{
		"node": of.Node != nil, "policy": of.Policy != nil, "workloadendpoint": of.WorkloadEndpoint != nil, "serviceaccount": of.ServiceAccount != nil, "namespace": of.Namespace != nil,
	}
	return slices.DeleteFunc(model.Controllers(), func(name string) bool { return on[name] })
}

func controllerOf[T any](v *model.ControllersConfig, name string) *T {
	if slices.Contains(v.Disabled, name) {
		return nil
	}
	return new(T)
}

func readControllersConfig(_ model.ControllersConfigKey, v *model.ControllersConfig, s *Stored) *KubeControllersConfiguration {
	s.Metadata.Name = "default"
	if v == nil {
		return &KubeControllersConfiguration{}
	}
	spec := &KubeControllersConfiguration{PrometheusMetricsPort: v.MetricsPort}
	if len(v.Disabled) > 0 {
		spec.Controllers = &Controllers{
			Node: controllerOf[NodeController](v, "node"), Policy: controllerOf[Controller](v, "policy"), WorkloadEndpoint: controllerOf[Controller](v, "workloadendpoint"),
			ServiceAccount: controllerOf[Controller](v, "serviceaccount"), Namespace: controllerOf[Controller](v, "namespace"),
		}
	}
	_ = spec.LogSeverityScreen.UnmarshalText([]byte(v.LogSeverityScreen)) // the model has the same words
	return spec
}

func writeControllersConfig(r writing[KubeControllersConfiguration]) (keys, error) {
	port := r.spec.PrometheusMetricsPort
	switch {
	case r.Metadata.Name != "default":
		return keys{}, r.at("metadata.name", "%q: want default", r.Metadata.Name)
	case port != nil && (*port < 0 || *port > 65535):
		return keys{}, r.at("spec.prometheusMetricsPort", "%d: want 0 to 65535", *port)
	}
	v := model.ControllersConfig{Disabled: r.spec.disabled(), LogSeverityScreen: strings.ToLower(string(r.spec.LogSeverityScreen)), MetricsPort: port, Meta: r.meta}
	return put(model.ControllersConfigKey{}, v), nil
}
