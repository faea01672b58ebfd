// SPDX-License-Identifier: Apache-2.0

// Package e2e runs pods as a cluster does: containerd and runc, called through the container runtime interface,
// call the built plugins with our network configuration. Its tests have the build tag e2e; `make e2e` builds what they
// need and runs them in namespaces of their own.
package e2e
