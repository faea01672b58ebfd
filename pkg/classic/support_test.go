// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// begin is when every test begins: what is sent then has "issued":1410276720.540.
var begin = time.UnixMilli(1410276720540)

const (
	idA = "a935e8e1-008a-4e05-af4b-4b5701df417e"
	idB = "b935e8e1-008a-4e05-af4b-4b5701df417e"
)

// lines show actions, one a line.
func lines(actions []Action) string {
	var b strings.Builder
	for _, a := range actions {
		switch a := a.(type) {
		case Reply:
			fmt.Fprintf(&b, "reply %v %s\n", a.From, a.Body)
		case Ask:
			fmt.Fprintf(&b, "ask %s %s\n", a.Peer, a.Body)
		case Publish:
			fmt.Fprintf(&b, "publish %s %s\n", a.Topic, a.Body)
		case Apply:
			fmt.Fprintf(&b, "apply")
			if a.Update.Resync {
				b.WriteString(" all")
			}
			for _, e := range a.Update.Entries {
				switch v := e.Value.(type) {
				case nil:
					fmt.Fprintf(&b, " -%s", e.Path)
				case model.WorkloadEndpoint:
					fmt.Fprintf(&b, " %s=%s%v%v", v.Name, v.State, v.IPv4Nets, v.IPv6Nets)
				case model.Rules:
					fmt.Fprintf(&b, " rules:%d+%d", len(v.Inbound), len(v.Outbound))
				default:
					fmt.Fprintf(&b, " %v", v)
				}
			}
			b.WriteString("\n")
		case Save:
			fmt.Fprintf(&b, "save %s %t\n", a.Name, a.Data != nil)
		case Log:
			fmt.Fprintf(&b, "log %s\n", a.Text)
		default:
			fmt.Fprintf(&b, "%s %+v\n", strings.ToLower(strings.TrimPrefix(reflect.TypeOf(a).String(), "classic.")), a)
		}
	}
	return b.String()
}

func expect(t *testing.T, what string, got []Action, want string) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(lines(got))); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// with is a message with some fields changed; nil takes one away.
func with(t *testing.T, message string, fields map[string]any) []byte {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(message), &m); err != nil {
		t.Fatal(err)
	}
	for k, v := range fields {
		if v == nil {
			delete(m, k)
		} else {
			m[k] = v
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
