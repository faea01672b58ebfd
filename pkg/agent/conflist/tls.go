// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/daemon/statefile"
)

// keepTLS keeps copies on the host of the files that the plugins need, as they change.
func (k *Files) keepTLS(dir string) error {
	from := map[string]string{netconf.TLSCA: k.cfg.CAFile, netconf.TLSCert: k.cfg.CertFile, netconf.TLSKey: k.cfg.KeyFile}
	content := map[string][]byte{}
	for name, path := range from {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("file for TLS of the plugins: %w", err)
		}
		content[name] = text
	}
	if len(content) == 0 {
		return nil
	}
	if cert, key := content[netconf.TLSCert], content[netconf.TLSKey]; cert != nil && key != nil {
		if _, err := tls.X509KeyPair(cert, key); err != nil { // happens while they are being replaced
			return fmt.Errorf("certificate %s and key %s of the plugins: %w: what was written before stays", k.cfg.CertFile, k.cfg.KeyFile, err)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return statefile.Advise(err)
	}
	for _, name := range []string{netconf.TLSCA, netconf.TLSCert, netconf.TLSKey} {
		if content[name] == nil {
			continue
		}
		if err := statefile.Replace(filepath.Join(dir, name), content[name], 0o600); err != nil {
			return statefile.Advise(err)
		}
	}
	return nil
}
