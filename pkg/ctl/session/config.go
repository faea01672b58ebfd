// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/resource"
	"github.com/calico-go/calico/pkg/store"
)

// DefaultConfigFile is read if it exists and --config names no other.
const DefaultConfigFile = "/etc/calico/calicoctl.cfg"

// Settings say where etcd is: the spec of a CalicoAPIConfig.
type Settings struct {
	DatastoreType    string `json:"datastoreType"`
	EtcdEndpoints    string `json:"etcdEndpoints"`
	EtcdDiscoverySRV string `json:"etcdDiscoverySrv"`
	EtcdCACertFile   string `json:"etcdCACertFile"`
	EtcdCertFile     string `json:"etcdCertFile"`
	EtcdKeyFile      string `json:"etcdKeyFile"`
	EtcdUsername     string `json:"etcdUsername"`
	EtcdPassword     string `json:"etcdPassword"`
	EtcdPasswordFile string `json:"etcdPasswordFile"`
}

// byFlag returns the settings by the names of their flags.
func (s Settings) byFlag() map[string]string {
	return map[string]string{
		"etcd-endpoints": s.EtcdEndpoints, "etcd-discovery-srv": s.EtcdDiscoverySRV, "etcd-ca-cert-file": s.EtcdCACertFile, "etcd-cert-file": s.EtcdCertFile,
		"etcd-key-file": s.EtcdKeyFile, "etcd-username": s.EtcdUsername, "etcd-password-file": s.EtcdPasswordFile,
	}
}

// apiConfig is a configuration file.
type apiConfig struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   string   `json:"metadata" input:"ignored"`
	Spec       Settings `json:"spec" input:"optional"`
}

// readConfig reads a configuration file. Unknown fields are errors.
func readConfig(path string) (Settings, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Settings{}, err
	}
	var c apiConfig
	if err := resource.DecodeInto(path, data, &c); err != nil {
		return Settings{}, err
	}
	switch {
	case !strings.EqualFold(c.Kind, "calicoApiConfig"):
		return Settings{}, fmt.Errorf("%s: kind: %q: want CalicoAPIConfig", path, c.Kind)
	case c.APIVersion != "projectcalico.org/v3" && c.APIVersion != "v1":
		return Settings{}, fmt.Errorf("%s: apiVersion: %q: want projectcalico.org/v3", path, c.APIVersion)
	case c.Spec.EtcdPassword != "":
		return Settings{}, fmt.Errorf("%s: spec.etcdPassword: write it to a file and name that in spec.etcdPasswordFile", path)
	}
	return c.Spec, nil
}

// storeConfig combines flags, environment and file; a flag overrides a variable, which overrides the file.
func (e *Env) storeConfig() (store.Config, error) {
	path := cmp.Or(e.configFile, DefaultConfigFile)
	file, err := readConfig(path)
	if errors.Is(err, fs.ErrNotExist) && e.configFile == "" {
		err = nil
	}
	if err != nil {
		return store.Config{}, Usagef("%w", err)
	}
	if e.Getenv("ETCD_PASSWORD") != "" {
		return store.Config{}, Usagef("ETCD_PASSWORD: write it to a file and name that in ETCD_PASSWORD_FILE")
	}
	if t := cmp.Or(e.Getenv("DATASTORE_TYPE"), file.DatastoreType, "etcdv3"); t != "etcdv3" {
		return store.Config{}, Usagef("datastore type %q is not supported: want etcdv3: resources are stored in etcd", t)
	}
	cfg, set := store.Config{RefusedTimeout: refusedTimeout}, file.byFlag()
	for _, o := range run.Etcd(&cfg) {
		if err := o.Set(cmp.Or(*e.etcd[o.Flag], e.Getenv(o.Variable), set[o.Flag])); err != nil {
			return cfg, Usagef("--%s, %s or its like in %s: %w", o.Flag, o.Variable, path, err)
		}
	}
	cfg.SetDefaults()
	return cfg, nil
}
