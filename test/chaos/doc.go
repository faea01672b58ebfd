// SPDX-License-Identifier: Apache-2.0

// Package chaos kills what runs, wherever it happens to be, and looks at what
// is left: plugins at every one of their steps, etcd's leader while many hosts
// work. Afterwards it walks through every revision that etcd went through: what
// etcd held was sound at each.
package chaos
