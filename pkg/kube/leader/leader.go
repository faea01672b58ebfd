// SPDX-License-Identifier: Apache-2.0

// Package leader has one of several processes lead, by a Lease of the Kubernetes API. It is apart from package kube
// because client-go's election is linked with the typed clients of every kind, which only the controllers can afford.
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

// Config says for what to run, and as whom. The zero durations are Kubernetes' own.
type Config struct {
	Namespace, Name string // of the Lease
	Identity        string // unique among those who run for it
	// LeaseDuration, 0 = 15 s, is how long the others wait for the leader; RenewDeadline, 0 = 10 s, is when a leader that
	// can't renew its lease gives up; RetryPeriod, 0 = 2 s, is between two tries.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	Logger                                    *slog.Logger // nil = none
}

// Run takes part in the election until the context ends; it returns nil then. Each time that this process leads, lead is
// called with a context that ends when it doesn't any more, and Run waits for it to return. While it does, another may
// lead: what lead writes must not take effect then. Where lead returns by itself, the Lease is given back, and this process
// takes no part until another has had time to take it.
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
					if ctx.Err() == nil { // it is over where this goroutine begins late
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
			_ = retry.Wait(ctx, cfg.LeaseDuration) // the loop asks the context
		}
		leave()
	}
	return nil
}
