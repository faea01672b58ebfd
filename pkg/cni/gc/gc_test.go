// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"fmt"
	"testing"

	"github.com/calico-go/calico/pkg/cni/protocol"
)

func TestFirstOf(t *testing.T) {
	var errs []error
	for i := range 5 {
		errs = append(errs, fmt.Errorf("cause %d", i+1))
	}
	if err := firstOf(nil); err != nil {
		t.Error(err)
	}
	if got := protocol.Fail(protocol.CodeKernel, firstOf(errs[:3]), "").Text; got != "cause 1; cause 2; cause 3" {
		t.Error(got)
	}
	if got := protocol.Fail(protocol.CodeKernel, firstOf(errs), "").Text; got != "cause 1; cause 2; cause 3; and 2 more" {
		t.Error(got)
	}
}
