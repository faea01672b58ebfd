// SPDX-License-Identifier: Apache-2.0

// Package leader elects one of several processes as the leader, by a Lease of the Kubernetes API. It is separate from package
// kube because client-go's election links the typed clients of every kind, which only the controllers can afford.
package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/calico-go/calico/pkg/retry"
)

// Config configures the election. The zero durations mean Kubernetes' defaults.
type Config struct {
	Namespace, Name string // of the Lease
	Identity        string // unique among the candidates
	// LeaseDuration, 0 = 15 s, is how long the others wait for the leader. RenewDeadline, 0 = 10 s, is when a leader that
	// can't renew its lease gives up. RetryPeriod, 0 = 2 s, is the time between two tries.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	Logger                                    *slog.Logger // nil = none
}

// Run takes part in the election until the context ends, and then returns nil. Each time that this process becomes the
// leader, Run calls lead with a context that ends when the lead is lost, and waits for lead to return. Until it does, another
// process may already lead: what lead writes then must not take effect. If lead returns by itself, Run releases the Lease and
// stays out of the election for a LeaseDuration, so that another process can take it.
func Run(ctx context.Context, leases rest.Interface, cfg Config, lead func(context.Context)) error {
	if cfg.LeaseDuration == 0 {
		cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod = 15*time.Second, 10*time.Second, 2*time.Second
	}
	if cfg.Logger != nil {
		ctx = klog.NewContext(ctx, logr.FromSlogHandler(&newsHandler{Handler: cfg.Logger.Handler()}))
	}
	if cfg.Identity == "" {
		return errors.New("take part in the election of a leader: no identity is set")
	}
	var leading sync.Mutex
	returned := func() { // waits until lead has returned
		leading.Lock()
		defer leading.Unlock()
	}
	for ctx.Err() == nil {
		part, leave := context.WithCancel(ctx)
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: cfg.Namespace, Name: cfg.Name},
				Client:     coordinationv1client.New(leases),
				LockConfig: resourcelock.ResourceLockConfig{Identity: cfg.Identity},
			},
			LeaseDuration: cfg.LeaseDuration, RenewDeadline: cfg.RenewDeadline, RetryPeriod: cfg.RetryPeriod,
			ReleaseOnCancel: true, Name: cfg.Name,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					leading.Lock()
					defer leading.Unlock()
					if ctx.Err() == nil { // this goroutine may begin after the lead is lost
						lead(ctx)
					}
					if ctx.Err() == nil {
						leave()
					}
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			leave()
			return fmt.Errorf("take part in the election of a leader: %w", err)
		}
		elector.Run(part)
		returned()
		if part.Err() != nil {
			_ = retry.Wait(ctx, cfg.LeaseDuration) // the loop checks the context
		}
		leave()
	}
	return nil
}
