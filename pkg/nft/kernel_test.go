// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestKernelHasWhatIsPrinted writes a bit of everything and expects the nft tool
// to print what we print.
func TestKernelHasWhatIsPrinted(t *testing.T) {
	inHost(t, func() {
		f := open(t)
		f.Update(sample())
		mustApply(t, f)
		if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
			t.Errorf("-ours +nft's:\n%s", diff)
		}
		f.Audit()
		wantWrites(t, f, 0, 0)
	})
}
