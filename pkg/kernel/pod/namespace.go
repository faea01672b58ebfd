// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
)

// Namespace is an open network namespace of a workload. It is good for one
// goroutine at a time.
type Namespace struct {
	path string
	rtnl.Netns
	sock *rtnl.Socket
	made madeVeth
}

// OpenNamespace opens the network namespace that the path refers to. The error
// wraps os.ErrNotExist when there is nothing at the path.
func OpenNamespace(path string) (*Namespace, error) {
	ns, err := rtnl.OpenNetns(path)
	if err != nil {
		return nil, err
	}
	n := &Namespace{path: path, Netns: ns}
	if n.sock, err = ns.Open(); err != nil {
		n.Close()
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return n, nil
}

// Path is what the namespace was opened with.
func (n *Namespace) Path() string { return n.path }

// Close releases the namespace; it stays as long as something else holds it.
func (n *Namespace) Close() {
	if n.sock != nil {
		n.sock.Close()
	}
	n.Netns.Close()
}
