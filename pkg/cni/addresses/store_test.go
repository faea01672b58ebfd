// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"errors"
	"testing"

	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/model"
)

// TestReadyThatDoesNotParse: this differs from false, and waiting does not help.
func TestReadyThatDoesNotParse(t *testing.T) {
	v, k := model.NewView(), model.ReadyKey{}
	v.Add(model.KeyRange(k), 1, []model.Entry{{Path: k.Path(), Key: k, Err: errors.New(`"banana": want true or false`), Revision: 1}})
	e := protocol.Explain(CheckReady(v))
	if want := `/calico/v1/Ready: "banana": want true or false`; e.Code != protocol.CodeData || e.Text != want || e.Hint == "" {
		t.Errorf("got %d %s, want %d %s", e.Code, e.Text, protocol.CodeData, want)
	}
}
