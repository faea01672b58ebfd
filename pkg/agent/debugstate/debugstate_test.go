// SPDX-License-Identifier: Apache-2.0

package debugstate

import (
	"strings"
	"testing"
)

func TestWriteText(t *testing.T) {
	for _, test := range []struct {
		state Endpoints
		want  string
	}{
		{Endpoints{Busy: true}, "# endpoints\nbusy: there was no answer in time\n"},
		{Endpoints{}, "# endpoints\n"},
		{Endpoints{All: []Endpoint{{Path: "/a", Interface: "cali1", Status: "up", Addresses: []string{"10.0.0.1", "fd00::1"}}, {Path: "/b", Status: "error", Reason: "bad"}}},
			"# endpoints\ncali1  up     10.0.0.1,fd00::1  /a  \n-      error                    /b  bad\n"},
	} {
		var b strings.Builder
		if err := test.state.WriteText(&b); err != nil || b.String() != test.want {
			t.Errorf("%v, %q, want %q", err, b.String(), test.want)
		}
	}
}
