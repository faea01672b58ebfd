// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/calico-go/calico/pkg/resource"
	"github.com/calico-go/calico/pkg/store"
)

// DefaultConfigFile is read if it is there and --config names no other.
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

// apiConfig is a configuration file.
type apiConfig struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   string   `json:"metadata" input:"ignored"`
	Spec       Settings `json:"spec" input:"optional"`
}

// readConfig reads a configuration file; every field must be one that is known.
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

// storeConfig joins flags, environment and file; a flag wins over a variable, and that over the file.
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
	cfg := store.Config{
		Endpoints:      store.ParseEndpoints(cmp.Or(e.flags.EtcdEndpoints, e.Getenv("ETCD_ENDPOINTS"), file.EtcdEndpoints)),
		DiscoverySRV:   cmp.Or(e.flags.EtcdDiscoverySRV, e.Getenv("ETCD_DISCOVERY_SRV"), file.EtcdDiscoverySRV),
		CAFile:         cmp.Or(e.flags.EtcdCACertFile, e.Getenv("ETCD_CA_CERT_FILE"), file.EtcdCACertFile),
		CertFile:       cmp.Or(e.flags.EtcdCertFile, e.Getenv("ETCD_CERT_FILE"), file.EtcdCertFile),
		KeyFile:        cmp.Or(e.flags.EtcdKeyFile, e.Getenv("ETCD_KEY_FILE"), file.EtcdKeyFile),
		Username:       cmp.Or(e.flags.EtcdUsername, e.Getenv("ETCD_USERNAME"), file.EtcdUsername),
		PasswordFile:   cmp.Or(e.flags.EtcdPasswordFile, e.Getenv("ETCD_PASSWORD_FILE"), file.EtcdPasswordFile),
		RefusedTimeout: refusedTimeout,
	}
	cfg.SetDefaults()
	return cfg, nil
}
