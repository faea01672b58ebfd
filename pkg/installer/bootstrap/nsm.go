// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// nsmSigner is the signerName of managers' requests. nsmName is the name of their account, of a ConfigMap, and of each manager as a server.
const nsmSigner, nsmName = "projectcalico.org/nsm", "calico-nsm"

// signNSM creates and publishes the authority of the managers of network services, and answers their requests until the context ends.
func (b *bootstrapper) signNSM(ctx context.Context) error {
	open := func(ctx context.Context, _ bool, do func(certifier) error) error {
		ca, err := b.authority(ctx, nsmName, nsmName)
		if err == nil {
			err = b.publish(ctx, nsmName, "ca.crt", ca)
		}
		if err != nil {
			return err
		}
		return do(certifier{ca, func(n *corev1.Node) (leaf, error) {
			return leaf{name: nodeUser(n.Name, string(n.UID)).Name, server: true, client: true, hosts: []string{nsmName, n.Name + "." + nsmName}}, nil
		}})
	}
	if err := open(ctx, false, func(certifier) error { return nil }); err != nil {
		return err
	}
	return b.sign(ctx, signer{nsmSigner, nsmName, open})
}
