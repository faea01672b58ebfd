// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"net/netip"
	"testing"
)

// FuzzState: a state that is read from JSON, as of a page of an agent of another version, is written and read as the same.
func FuzzState(f *testing.F) {
	remote := Remote{RemoteID: RemoteID{Outer: netip.MustParseAddr("192.0.2.2")}}
	sample, err := json.Marshal(State{Remotes: map[RemoteID]Remote{remote.RemoteID: remote}, Problems: map[ProblemID]Problem{{Kind: noNextHop, Subject: "x"}: {ProblemID: ProblemID{Kind: noNextHop, Subject: "x"}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sample)
	f.Add([]byte(`{"remotes":[{},{}],"problems":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var st, again State
		if json.Unmarshal(data, &st) != nil {
			return
		}
		text, err := json.Marshal(st)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		if second, err := json.Marshal(again); err != nil || string(second) != string(text) || len(again.Remotes) != len(st.Remotes) || len(again.Problems) != len(st.Problems) {
			t.Errorf("%s\nis %s, %v", text, second, err)
		}
	})
}
