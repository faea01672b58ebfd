// SPDX-License-Identifier: Apache-2.0

//go:build e2evm

package guest

import (
	"os"
	"strings"
	"testing"
)

func TestKernel(t *testing.T) {
	v, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(strings.TrimSpace(string(v)))
}
