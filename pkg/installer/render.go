// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/calico-go/calico/netconf"
)

// render fills in the placeholders of the network configuration and parses it.
func (c Config) render() (*netconf.List, error) {
	if strings.TrimSpace(c.Template) == "" {
		return nil, errors.New("CNI_NETWORK_CONFIG is not set: put the list of plugins in it, as docs/install.md shows")
	}
	var errs []error
	text := regexp.MustCompile(`__[A-Z0-9]+(_[A-Z0-9]+)*__`).ReplaceAllStringFunc(c.Template, func(name string) string {
		value, err := c.value(strings.Trim(name, "_"))
		if err != nil && !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == err.Error() }) {
			errs = append(errs, err)
		}
		return inString(value)
	})
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("CNI_NETWORK_CONFIG: %w", err)
	}
	list, err := netconf.ParseList([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("CNI_NETWORK_CONFIG, with its placeholders filled in: %w", err)
	}
	return list, nil
}

// value returns the value of a placeholder.
func (c Config) value(name string) (string, error) {
	all := placeholders()
	i := slices.IndexFunc(all, func(p placeholder) bool { return p.name == name })
	if i < 0 {
		known := make([]string, len(all))
		for i, p := range all {
			known[i] = "__" + p.name + "__"
		}
		return "", fmt.Errorf("__%s__ is not a placeholder: use one of %s", name, strings.Join(known, ", "))
	}
	tls := func(file string) string {
		if cmp.Or(c.environ["CNI_"+name], c.environ[name]) == "" {
			return ""
		}
		return filepath.Join(c.ConfDir, netconf.TLSDir, file)
	}
	switch name {
	case "KUBERNETES_NODE_NAME":
		if c.Node == "" {
			return "", errors.New("__KUBERNETES_NODE_NAME__ needs KUBERNETES_NODE_NAME: set it to the pod's spec.nodeName")
		}
		return c.Node, nil
	case "ETCD_CA_CERT_FILE":
		return tls(netconf.TLSCA), nil
	case "ETCD_CERT_FILE":
		return tls(netconf.TLSCert), nil
	case "ETCD_KEY_FILE":
		return tls(netconf.TLSKey), nil
	case "KUBECONFIG_FILEPATH":
		return filepath.Join(c.ConfDir, "calico-kubeconfig"), nil
	}
	value := cmp.Or(c.environ[all[i].variable], all[i].initial)
	if value == "" && all[i].required {
		return "", fmt.Errorf("__%s__ needs %s, which is not set: set it in the environment of calico-install", name, all[i].variable)
	}
	return value, nil
}

// inString returns a value as it is written within a JSON string.
func inString(value string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(value) != nil {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
}
