// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"fmt"
	"strings"
	"testing"
)

// workload is a Deployment, a StatefulSet or a DaemonSet of pods with the label app.
func workload(kind, namespace, name string, replicas int, container string) string {
	more := fmt.Sprintf("replicas: %d", replicas)
	switch kind {
	case "StatefulSet":
		more += "\n  serviceName: " + name
	case "DaemonSet":
		more = "minReadySeconds: 0" // it has no number of replicas
	}
	return fmt.Sprintf(`apiVersion: apps/v1
kind: %s
metadata: {name: %s, namespace: %s}
spec:
  %s
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [%s]
---
`, kind, name, namespace, more, name, name, container)
}

const (
	idle = `{name: main, image: "` + PauseImage + `"}`
	web  = `{name: main, image: "` + Agnhost + `", args: [netexec, --http-port=8080], ports: [{name: http, containerPort: 8080}],
        readinessProbe: {httpGet: {path: /hostname, port: http}, periodSeconds: 1}, livenessProbe: {httpGet: {path: /hostname, port: http}, initialDelaySeconds: 5}}`
	// probed are two containers that are probed in every way.
	probed = `{name: http, image: "` + Agnhost + `", args: [netexec, --http-port=8080], startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 60},
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 10}, livenessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1, timeoutSeconds: 10}},
      {name: grpc, image: "` + Agnhost + `", args: [grpc-health-checking, --http-port=8081], startupProbe: {grpc: {port: 5000}, periodSeconds: 1, failureThreshold: 60},
        readinessProbe: {grpc: {port: 5000}, periodSeconds: 1, timeoutSeconds: 10}, livenessProbe: {grpc: {port: 5000}, periodSeconds: 1, timeoutSeconds: 10}}`
)

func service(namespace, name string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s}
spec: {selector: {app: %s}, ports: [{port: 80, targetPort: http}]}
---
`, name, namespace, name)
}

// namespace makes one and removes it, with all that is in it, when the subtest ends.
func (c *Cluster) namespace(t *testing.T, name string) {
	t.Helper()
	c.Kubectl("create", "namespace", name)
	t.Cleanup(func() {
		if _, err := c.TryKubectl("", "delete", "namespace", name); err != nil {
			t.Error(err)
		}
	})
}

// get asks a web server from a pod for its name.
func (c *Cluster) get(from Pod, host, port string) (string, error) {
	return c.ask(from, host, port, "/hostname")
}

// ask asks a web server from a pod for a page of one line.
func (c *Cluster) ask(from Pod, host, port, page string) (string, error) {
	out, err := c.TryKubectl("", "exec", "-n", from.Namespace, from.Name, "--", "sh", "-c",
		fmt.Sprintf(`printf 'GET %s HTTP/1.0\r\n\r\n' | nc -w 3 %s %s`, page, host, port))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1], err
}

// connect says whether a pod reaches an address.
func (c *Cluster) connect(from Pod, address string) error {
	_, err := c.TryKubectl("", "exec", "-n", from.Namespace, from.Name, "--", "/agnhost", "connect", "--timeout=2s", address)
	return err
}

func (c *Cluster) serviceAddress(namespace, name string) string {
	c.tb.Helper()
	return c.Kubectl("get", "service", "-n", namespace, name, "-o", "jsonpath={.spec.clusterIP}")
}

func policy(namespace, name, spec string) string {
	return fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: %s}\nspec: %s\n---\n", name, namespace, spec)
}
