// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package leader_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/kube/leader"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
)

// TestGivenBack: a leader that can't do its work makes room for another.
func TestGivenBack(t *testing.T) {
	client, err := kube.New(kube.Config{Name: "test", Kubeconfig: kubernetes.Control(t).Kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	run := func(identity string, lead func(context.Context)) {
		all.Go(func() {
			err := leader.Run(ctx, client.Leases(), leader.Config{
				Namespace: "default", Name: "test", Identity: identity,
				LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
			}, lead)
			if err != nil {
				t.Error(err)
			}
		})
	}
	tried := make(chan bool, 1)
	run("ill", func(context.Context) {
		select {
		case tried <- true:
		default:
		}
	})
	<-tried
	leads := make(chan bool)
	run("well", func(ctx context.Context) {
		close(leads)
		<-ctx.Done()
	})
	eventually.Receive(t, "somebody else to lead", leads)
	stop()
	all.Wait()
}
