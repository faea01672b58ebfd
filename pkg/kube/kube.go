// SPDX-License-Identifier: Apache-2.0

// Package kube reads, watches and writes the objects of the Kubernetes API. Only this package and package leader use client-go's
// clients. This one uses none of the typed clientset, which brings in every group of the API.
package kube

import (
	"fmt"
	"log/slog"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
)

// Config says where the API is and which credentials to use. The zero value is for a process in a pod: it uses the pod's
// service account.
type Config struct {
	// Kubeconfig is a file in kubectl's format. APIRoot, the URL of the API, overrides the server that it names.
	Kubeconfig string
	APIRoot    string
	// CAFile verifies the API. TokenFile, which is read again when it changes, or CertFile and KeyFile authenticate this
	// client. They count only with an APIRoot and without a Kubeconfig.
	CAFile, TokenFile, CertFile, KeyFile string
	// Name is the name of the program, for the API's log and as the source of events.
	Name string
	// Logger, nil = none, gets the errors that watches recover from by themselves.
	Logger *slog.Logger
}

// Client is a connection to the API, safe for concurrent use.
type Client struct {
	name    string
	log     *slog.Logger
	groups  map[schema.GroupVersion]*rest.RESTClient
	dynamic dynamic.Interface

	mu      sync.Mutex
	events  record.EventBroadcaster // nil: none was recorded
	records record.EventRecorder
}

// pings are the environment variables that tell client-go after how many seconds of silence to ping a connection, and how long to
// wait for the answer. Its defaults are 30 and 15; with these it leaves an API server that vanished without a word sooner.
var pings = [...]struct{ name, value string }{{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "15"}, {"HTTP2_PING_TIMEOUT_SECONDS", "10"}}

// New prepares a client. It doesn't connect: the first request finds out whether the API is there.
func New(cfg Config) (*Client, error) {
	for _, p := range pings {
		if os.Getenv(p.name) == "" { // else the operator has chosen
			if err := os.Setenv(p.name, p.value); err != nil {
				return nil, fmt.Errorf("connect to the Kubernetes API: %w", err)
			}
		}
	}
	c := &Client{name: cfg.Name, log: cfg.Logger, groups: map[schema.GroupVersion]*rest.RESTClient{}}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	rc, err := cfg.rest()
	if err != nil {
		return nil, err
	}
	rc.UserAgent = cfg.Name
	rc.QPS = -1 // the API has its own limits, which take all clients into account
	rc.WarningHandler = rest.NoWarnings{}
	httpClient, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("connect to the Kubernetes API at %s: %w", rc.Host, err)
	}
	for _, k := range kinds {
		if c.groups[k.version] != nil {
			continue
		}
		if c.groups[k.version], err = rest.RESTClientForConfigAndClient(k.configure(rc), httpClient); err != nil {
			return nil, fmt.Errorf("connect to the Kubernetes API at %s: %w", rc.Host, err)
		}
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(rc, httpClient); err != nil {
		return nil, fmt.Errorf("connect to the Kubernetes API at %s: %w", rc.Host, err)
	}
	return c, nil
}

func (cfg Config) rest() (*rest.Config, error) {
	switch {
	case cfg.Kubeconfig != "":
		if _, err := os.Stat(cfg.Kubeconfig); err != nil {
			return nil, fmt.Errorf("read kubeconfig: %w", err)
		}
		rc, err := clientcmd.BuildConfigFromFlags(cfg.APIRoot, cfg.Kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %w", cfg.Kubeconfig, err)
		}
		return rc, nil
	case cfg.APIRoot != "":
		return &rest.Config{
			Host: cfg.APIRoot, BearerTokenFile: cfg.TokenFile,
			TLSClientConfig: rest.TLSClientConfig{CAFile: cfg.CAFile, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile},
		}, nil
	}
	rc, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("connect to the Kubernetes API as a pod: %w: outside of a cluster give a kubeconfig", err)
	}
	return rc, nil
}

// Leases returns the client of the API's leases, for package leader.
func (c *Client) Leases() rest.Interface { return c.groups[leases] }

// Close closes the client. Events not sent yet may be lost.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events != nil {
		c.events.Shutdown()
		c.events = nil
	}
}
