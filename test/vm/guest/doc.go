// SPDX-License-Identifier: Apache-2.0

// Package guest is what runs in the virtual machine of test/vm: labs on Debian's kernel. Its tests have the build tag
// e2evm; `make e2e-vm` builds and runs them.
package guest
