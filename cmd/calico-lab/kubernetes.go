// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/calico-go/calico/pkg/lab/kubernetes"
)

// upKubernetes creates a Kubernetes cluster with Calico and runs a shell next to it, which gets this command's input.
// The cluster ends with the shell.
func upKubernetes(ctx context.Context, log io.Writer) error {
	shell := os.Getenv("SHELL")
	if shell == "" {
		shell = "sh"
	}
	for _, program := range []string{"go", "ip", "nsenter", "containerd", "runc", "busybox", shell} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("a cluster needs the program %s: %w; on Debian: apt install iproute2 util-linux containerd runc busybox-static", program, err)
		}
	}
	root, err := kubernetes.Root()
	if err != nil {
		return fmt.Errorf("%w: run it in a clone of Calico, after make isolate tools kubernetes images", err)
	}
	if os.Getenv("CALICO_ISOLATED") != "1" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program, to run it in namespaces: %w", err)
		}
		isolate := filepath.Join(root, "bin", "tools", "isolate")
		if err := syscall.Exec(isolate, append([]string{isolate, self}, os.Args[1:]...), os.Environ()); err != nil {
			return fmt.Errorf("run %s: %w: run make isolate tools kubernetes images", isolate, err)
		}
	}
	start := time.Now()
	fmt.Fprintln(log, "a cluster of two nodes starts")
	err = kubernetes.Session(ctx, log, func(c *kubernetes.Cluster) error {
		fmt.Fprintf(log, `Kubernetes with Calico runs after %v, in a network of its own, without DNS. In this shell,
  kubectl create deployment web --replicas 4 --image %s -- /agnhost netexec
  kubectl get pods -o wide
exit ends it all.
`, time.Since(start).Round(time.Second), kubernetes.Agnhost)
		cmd := exec.Command(shell)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "PATH="+filepath.Join(root, "bin", "kubernetes")+":"+os.Getenv("PATH"))
		err := cmd.Run()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return &exitError{exit.ExitCode()}
		}
		return err
	})
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted; nothing is left of the cluster")
	}
	return err
}
