// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// Parse parses one network configuration. It returns a *SyntaxError if the input isn't a JSON object; else every
// *FieldError, joined, along with the content of the other fields.
func Parse(stdin []byte) (*Config, error) {
	var errs []error
	o, err := parseObject(stdin, &errs)
	if err != nil {
		return nil, err
	}
	c := &Config{
		Nodename:         Nodename{File: defaultNodenameFile},
		Log:              Log{File: defaultLogFile, MaxSize: defaultLogMaxSize, MaxAge: defaultLogMaxAge, MaxCount: defaultLogMaxCount},
		Agent:            Agent{Socket: defaultAgentSocket, Timeout: defaultPolicySetupTimeout},
		DatastoreTimeout: defaultDatastoreTimeout,
		Raw:              stdin,
	}
	o.str("cniVersion", &c.CNIVersion)
	c.parseName(o)
	o.str("type", &c.Type)
	if c.Type == "" && kind(o.get("plugins")) == "list" {
		o.fail("plugins", "this is a list of plugins: pass the configuration of one, with the name and the cniVersion of the list")
	}
	c.Etcd.parse(o)
	var datastore string
	switch o.str("datastore_type", &datastore); datastore {
	case "", "etcdv3":
	case "kubernetes":
		o.fail("datastore_type", "kubernetes: data in the Kubernetes API isn't read: take the field away, and say in etcd_endpoints where etcd is")
	default:
		o.fail("datastore_type", `want "etcdv3" or no such field, got %q`, datastore)
	}
	c.Nodename.parse(o)
	c.IPAM.parse(o)
	if o.integer("mtu", 0, &c.MTU) && c.MTU != 0 && (c.MTU < 68 || c.MTU > 65535) {
		o.fail("mtu", "want 0 or 68 to 65535 bytes, got %d", c.MTU)
	}
	c.parsePolicy(o)
	o.object("container_settings").boolean("allow_ip_forwarding", &c.IPForward)
	o.boolean("include_default_routes", &c.IncludeDefaultRoutes)
	features := o.object("feature_control")
	features.boolean("ip_addrs_no_ipam", &c.IPAddrsNoIPAM)
	features.boolean("floating_ips", &c.FloatingIPs)
	c.Log.parse(o)
	if o.str("agent_socket", &c.Agent.Socket) {
		c.Agent.SocketSet = true
		o.absolute("agent_socket", c.Agent.Socket)
	}
	o.seconds("policy_setup_timeout_seconds", 0, &c.Agent.Timeout)
	o.seconds("datastore_timeout_seconds", 1, &c.DatastoreTimeout)
	c.parseRuntime(o)
	c.parseAttachments(o)
	var isGateway, isDefaultGateway bool
	o.boolean("isGateway", &isGateway)
	o.boolean("isDefaultGateway", &isDefaultGateway)
	c.IsGateway = isGateway || isDefaultGateway
	if c.PrevResult = o.get("prevResult"); c.PrevResult != nil && kind(c.PrevResult) != "object" {
		o.fail("prevResult", "want an object, got %s", kind(c.PrevResult))
	}
	return c, errors.Join(errs...)
}

// ParseDEL is Parse for a DEL, which removes what exists whatever was configured. Invalid parts of what the runtime
// passes for the single container are left out, of Raw too, and ignored says why: they can't be corrected, and no ADD
// can have succeeded with them.
func ParseDEL(stdin []byte) (c *Config, ignored, err error) {
	c, err = Parse(stdin)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || c == nil {
		return c, nil, err
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(stdin, &fields) != nil {
		return c, nil, err
	}
	var wrong []error
	for _, one := range joined.Unwrap() {
		if field, ok := errors.AsType[*FieldError](one); ok {
			switch top, _, _ := strings.Cut(field.Field, "."); top {
			case "runtimeConfig", "args", "prevResult":
				delete(fields, top)
				wrong = append(wrong, one)
			}
		}
	}
	if len(wrong) == 0 {
		return c, nil, err
	}
	rest, jsonErr := json.Marshal(fields)
	if jsonErr != nil {
		return c, nil, err
	}
	c, err = Parse(rest)
	return c, errors.Join(wrong...), err
}

const nameCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

func (c *Config) parseName(o object) {
	if o.str("name", &c.Name); c.Name == "" {
		if o.get("name") == nil || kind(o.get("name")) == "string" {
			o.fail("name", "missing: every network needs a name")
		}
	} else if strings.TrimLeft(c.Name, nameCharacters) != "" {
		o.fail("name", "want letters, digits, '_', '.' and '-', got %q", c.Name)
	}
}

func (e *Etcd) parse(o object) {
	var list, authority, scheme string
	o.str("etcd_endpoints", &list)
	o.str("etcd_discovery_srv", &e.DiscoverySRV)
	o.str("etcd_ca_cert_file", &e.CAFile)
	o.str("etcd_cert_file", &e.CertFile)
	o.str("etcd_key_file", &e.KeyFile)
	o.str("etcd_username", &e.Username)
	o.str("etcd_password_file", &e.PasswordFile)
	o.str("etcd_authority", &authority)
	o.str("etcd_scheme", &scheme)
	for _, s := range strings.Split(list, ",") {
		if s = strings.TrimSpace(s); s != "" {
			e.Endpoints = append(e.Endpoints, s)
			checkEndpoint(o, s)
		}
	}
	if len(e.Endpoints) > 0 && e.DiscoverySRV != "" {
		o.fail("etcd_discovery_srv", "set together with etcd_endpoints: keep one of the two")
	}
	if (e.CertFile == "") != (e.KeyFile == "") {
		o.fail("etcd_cert_file", "etcd_cert_file and etcd_key_file belong together: set both or neither")
	}
	if (e.Username == "") != (e.PasswordFile == "") {
		o.fail("etcd_username", "etcd_username and etcd_password_file belong together: set both or neither")
	}
	switch scheme {
	case "", "http", "https":
	default:
		o.fail("etcd_scheme", `want "http" or "https", got %q`, scheme)
	}
	if len(e.Endpoints) > 0 || e.DiscoverySRV != "" {
		return // the newer fields take precedence
	}
	if e.Unnamed = authority == ""; e.Unnamed {
		authority = strings.TrimPrefix(defaultEndpoint, "http://")
	}
	if scheme == "" {
		scheme = "http"
		if e.CAFile != "" || e.CertFile != "" {
			scheme = "https"
		}
	}
	e.Endpoints = []string{scheme + "://" + authority}
}

// Environ reads etcd's location from environment variables, such as ETCD_ENDPOINTS, if the network configuration has
// none.
func (e *Etcd) Environ(getenv func(string) string) error {
	if !e.Unnamed || cmp.Or(getenv("ETCD_ENDPOINTS"), getenv("ETCD_DISCOVERY_SRV"), getenv("ETCD_AUTHORITY"), getenv("ETCD_SCHEME")) == "" {
		return nil
	}
	var errs []error
	o := object{path: "environment", fields: map[string]json.RawMessage{}, errs: &errs}
	for name, configured := range map[string]string{
		"etcd_endpoints": "", "etcd_discovery_srv": "", "etcd_ca_cert_file": e.CAFile, "etcd_cert_file": e.CertFile, "etcd_key_file": e.KeyFile,
		"etcd_username": e.Username, "etcd_password_file": e.PasswordFile, "etcd_authority": "", "etcd_scheme": "",
	} {
		o.fields[name], _ = json.Marshal(cmp.Or(configured, getenv(strings.ToUpper(name)))) // a string always marshals
	}
	*e = Etcd{}
	e.parse(o)
	return errors.Join(errs...)
}

func checkEndpoint(o object, s string) {
	rest := s
	if scheme, after, ok := strings.Cut(s, "://"); ok {
		rest = after
		switch scheme {
		case "http", "https", "unix", "unixs":
		default:
			o.fail("etcd_endpoints", "%q: want http:// or https://", s)
			return
		}
	}
	if rest == "" || strings.ContainsAny(rest, " \t\r\n") {
		o.fail("etcd_endpoints", "%q: want a host and port like https://10.0.0.1:2379", s)
	}
}

func (n *Nodename) parse(o object) {
	o.str("nodename", &n.Name)
	n.FileSet = o.str("nodename_file", &n.File)
	n.FileRequired = o.boolean("nodename_file_optional", &n.FileOptional) && !n.FileOptional
	o.str("hostname", &n.Hostname)
	n.Name, n.Hostname = strings.TrimSpace(n.Name), strings.TrimSpace(n.Hostname)
	if n.FileSet && n.File == "" {
		n.File, n.FileSet = defaultNodenameFile, false
	}
	o.absolute("nodename_file", n.File)
}

func (i *IPAM) parse(o object) {
	raw := o.get("ipam")
	o = o.object("ipam")
	i.AssignIPv4 = true
	o.str("type", &i.Type)
	if strings.ContainsRune(i.Type, '/') {
		o.fail("type", "want the name of a plugin in CNI_PATH, got %q", i.Type)
	}
	o.boolOrString("assign_ipv4", &i.AssignIPv4)
	o.boolOrString("assign_ipv6", &i.AssignIPv6)
	i.IPv4Pools = o.pools("ipv4_pools", false)
	i.IPv6Pools = o.pools("ipv6_pools", true)
	o.str("subnet", &i.Subnet)
	i.PodCIDR = replacePodCIDRs(decodeIPAM(raw), func(bool) string { return "" })
	var gateway string
	if i.Type == CalicoIPAM && o.str("gateway", &gateway) && gateway != "" {
		addr, err := netip.ParseAddr(gateway)
		if err != nil {
			o.fail("gateway", "want an IP address, got %q", gateway)
		}
		i.Gateway = addr
	}
}

func (o object) pools(field string, v6 bool) []model.PoolRef {
	var out []model.PoolRef
	for i, s := range o.strings(field) {
		ref, err := poolOf(v6)(s)
		if err != nil {
			o.fail(fmt.Sprintf("%s[%d]", field, i), "%v", err)
			continue
		}
		out = append(out, ref)
	}
	return out
}

func (c *Config) parsePolicy(o object) {
	p := o.object("policy")
	var policyType string
	p.str("type", &policyType)
	switch policyType {
	case "":
	case "k8s":
		c.Policy.Kubernetes = true
	case "k8s-annotations":
		p.fail("type", `k8s-annotations: policy isn't read from annotations: want "k8s", and Kubernetes' NetworkPolicies, or no such field`)
	default:
		p.fail("type", `want "k8s" or no such field, got %q`, policyType)
	}
	p.str("k8s_api_root", &c.Policy.APIRoot)
	p.str("k8s_auth_token", &c.Policy.AuthToken)
	p.str("k8s_client_certificate", &c.Policy.ClientCertificate)
	p.str("k8s_client_key", &c.Policy.ClientKey)
	p.str("k8s_certificate_authority", &c.Policy.CAFile)
	k := o.object("kubernetes")
	k.str("kubeconfig", &c.Kubernetes.Kubeconfig)
	k.str("k8s_api_root", &c.Kubernetes.APIRoot)
	k.str("node_name", &c.Kubernetes.NodeName)
}

func (l *Log) parse(o object) {
	var level string
	if o.str("log_level", &level) {
		switch strings.ToLower(level) {
		case "", "info":
		case "debug", "trace":
			l.Level = slog.LevelDebug
		case "warn", "warning":
			l.Level = slog.LevelWarn
		case "error", "fatal", "panic", "critical", "none":
			l.Level = slog.LevelError
		default:
			o.fail("log_level", "want debug, info, warning or error, got %q", level)
		}
	}
	if o.str("log_file_path", &l.File) && l.File != "" {
		o.absolute("log_file_path", l.File)
	}
	o.integer("log_file_max_size", 1, &l.MaxSize)
	o.integer("log_file_max_age", 0, &l.MaxAge)
	o.integer("log_file_max_count", 0, &l.MaxCount)
}

// absolute rejects a relative path: its meaning would depend on where the runtime was started.
func (o object) absolute(field, path string) {
	if !strings.HasPrefix(path, "/") {
		o.fail(field, "want an absolute path, got %q", path)
	}
}

func (o object) seconds(field string, low int, dst *time.Duration) {
	var n int
	if o.integer(field, low, &n) {
		*dst = time.Duration(n) * time.Second
	}
}
