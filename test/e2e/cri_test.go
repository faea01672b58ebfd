// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// runtimeClient is what a kubelet has: the runtime's service.
type runtimeClient struct {
	cri.RuntimeServiceClient
	groups string // parent of the pods' control groups
}

// dial connects to containerd and waits until its network is ready. The connection survives containerd's restart.
func dial(ctx context.Context, t *testing.T, d *daemon) *runtimeClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+d.path("containerd.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &runtimeClient{cri.NewRuntimeServiceClient(conn), d.groups()}
	c.waitReady(ctx, t)
	return c
}

// waitReady waits until the runtime and its network are ready.
func (c *runtimeClient) waitReady(ctx context.Context, t *testing.T) {
	t.Helper()
	eventually.Nil(t, "the runtime to be ready", func() error {
		status, err := c.Status(ctx, &cri.StatusRequest{})
		if err != nil {
			return err
		}
		for _, cond := range status.Status.Conditions {
			if !cond.Status {
				return fmt.Errorf("%s: %s %s", cond.Type, cond.Reason, cond.Message)
			}
		}
		return nil
	})
}

// A pod is a sandbox with one container in it that answers on port 80 with its name.
type pod struct {
	name      string
	sandbox   string // id
	container string // id
	config    *cri.PodSandboxConfig
	addrs     []netip.Addr
}

// podOption changes a pod's configuration before it is made.
type podOption func(*cri.PodSandboxConfig)

// run makes a sandbox and starts the container in it.
func (c *runtimeClient) run(ctx context.Context, name string, options ...podOption) (*pod, error) {
	p, err := c.runSandbox(ctx, name, options...)
	if err != nil {
		return nil, err
	}
	created, err := c.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId:  p.sandbox,
		SandboxConfig: p.config,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "web", Attempt: p.config.Metadata.Attempt},
			Image:    &cri.ImageSpec{Image: podImage},
			Command:  []string{"/bin/sh", "-c", "hostname > /www/index.html && exec httpd -f -p 80 -h /www"},
			Linux:    &cri.LinuxContainerConfig{},
		},
	})
	if err != nil {
		return p, fmt.Errorf("create container of %s: %w", name, err)
	}
	p.container = created.ContainerId
	if _, err := c.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: p.container}); err != nil {
		return p, fmt.Errorf("start container of %s: %w", name, err)
	}
	return p, nil
}

// runSandbox makes a sandbox and asks for its addresses.
func (c *runtimeClient) runSandbox(ctx context.Context, name string, options ...podOption) (*pod, error) {
	config := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Hostname: name,
		Linux:    &cri.LinuxPodSandboxConfig{CgroupParent: c.groups},
	}
	for _, o := range options {
		o(config)
	}
	made, err := c.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		return nil, fmt.Errorf("run sandbox of %s: %w", name, err)
	}
	p := &pod{name: name, sandbox: made.PodSandboxId, config: config}
	status, err := c.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.sandbox})
	if err != nil {
		return p, fmt.Errorf("status of sandbox of %s: %w", name, err)
	}
	texts := []string{status.Status.Network.Ip}
	for _, ip := range status.Status.Network.AdditionalIps {
		texts = append(texts, ip.Ip)
	}
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return p, fmt.Errorf("address of %s: %w", name, err)
		}
		p.addrs = append(p.addrs, a)
	}
	return p, nil
}

// exec runs a command in the pod's container and returns what it wrote to stdout.
func (c *runtimeClient) exec(ctx context.Context, p *pod, command ...string) (string, error) {
	reply, err := c.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: p.container, Cmd: command, Timeout: 20})
	if err != nil {
		return "", fmt.Errorf("%q in %s: %w", command, p.name, err)
	}
	if reply.ExitCode != 0 {
		return "", fmt.Errorf("%q in %s: status %d: %s", command, p.name, reply.ExitCode, reply.Stderr)
	}
	return string(reply.Stdout), nil
}

// stopSandbox stops the sandbox, which ends its containers and takes its network away.
func (c *runtimeClient) stopSandbox(ctx context.Context, p *pod) error {
	if _, err := c.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.sandbox}); err != nil {
		return fmt.Errorf("stop sandbox of %s: %w", p.name, err)
	}
	return nil
}

// removeSandbox removes a sandbox, stopped or not.
func (c *runtimeClient) removeSandbox(ctx context.Context, p *pod) error {
	if _, err := c.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.sandbox}); err != nil {
		return fmt.Errorf("remove sandbox of %s: %w", p.name, err)
	}
	return nil
}
