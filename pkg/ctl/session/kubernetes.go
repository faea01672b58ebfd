// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/calico-go/calico/pkg/kube"
)

// KubeconfigFlag adds the flag that says where the Kubernetes API is.
func KubeconfigFlag(f *pflag.FlagSet, kubeconfig *string) {
	f.StringVar(kubeconfig, "kubeconfig", "", "kubeconfig (default KUBECONFIG, ~/.kube/config if it is there, or the service account of this pod)")
}

// Kubernetes returns a client of the Kubernetes API, which the caller closes. The first request finds out whether it is there.
func (e *Env) Kubernetes(kubeconfig string) (*kube.Client, error) {
	kubeconfig = cmp.Or(kubeconfig, e.Getenv("KUBECONFIG"))
	if home := e.Getenv("HOME"); kubeconfig == "" && home != "" {
		file := filepath.Join(home, ".kube", "config")
		if _, err := os.Stat(file); err == nil {
			kubeconfig = file
		}
	}
	client, err := kube.New(kube.Config{Kubeconfig: kubeconfig, Name: "calicoctl"})
	if err != nil {
		return nil, Usagef("%w: --kubeconfig or KUBECONFIG names one", err)
	}
	return client, nil
}
