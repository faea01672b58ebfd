// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

func somePod() Pod {
	return Pod{
		UID: "5f3c1b1e", ServiceAccount: "cart", Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{"cni.projectcalico.org/ipAddrs": `["10.0.0.1"]`},
		Ports:       []model.EndpointPort{{Name: "dns", Protocol: model.ProtocolUDP, Port: 53}, {Name: "dns", Protocol: model.ProtocolTCP, Port: 53}},
		PodCIDRs:    []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10:244:1::/64")},
		Unshaped:    true,
	}
}

var comparePods = cmp.Options{cmpopts.EquateComparable(netip.Prefix{})}

func TestAskPod(t *testing.T) {
	request := PodRequest{Namespace: "a&b=c d", Name: "web-0", UID: "u"}
	for _, tt := range []struct {
		name string
		pod  Pod
		err  error
		want error
	}{
		{"pod", somePod(), nil, nil},
		{"of the node alone", Pod{}, nil, nil},
		{"absent", Pod{}, fmt.Errorf("%w: it was deleted", ErrNoPod), errors.New("no such pod: it was deleted")},
		{"no Kubernetes", Pod{}, &RejectedError{Reason: "no kubeconfig"}, &RejectedError{Reason: "no kubeconfig"}},
		{"not now", Pod{}, errors.New("the API server is away"), &RejectedError{Reason: "the API server is away", Retry: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got PodRequest
			socket, _ := serve(t, waiter{pod: func(_ context.Context, r PodRequest) (Pod, error) {
				got = r
				return tt.pod, tt.err
			}})
			p, err := AskPod(t.Context(), socket, request)
			if diff := cmp.Diff(fmt.Sprint(tt.want), fmt.Sprint(err)); diff != "" || errors.Is(err, ErrNoPod) != errors.Is(tt.err, ErrNoPod) {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
			if diff := cmp.Diff(tt.pod, p, comparePods); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(request, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAskPodInTime: who asks says how long it waits, and learns what for.
func TestAskPodInTime(t *testing.T) {
	socket, _ := serve(t, waiter{pod: func(ctx context.Context, _ PodRequest) (Pod, error) {
		<-ctx.Done()
		return Pod{}, errors.New("the watch has not shown it")
	}})
	for within := 2 * time.Second; ; within *= 2 { // as in TestReasonBeforeTheDeadline
		ctx, cancel := context.WithTimeout(t.Context(), within)
		_, err := AskPod(ctx, socket, PodRequest{Namespace: "a", Name: "b"})
		cancel()
		if rejected, ok := errors.AsType[*RejectedError](err); ok && rejected.Reason == "the watch has not shown it" {
			break
		}
		if within > 20*time.Second {
			t.Fatal(err)
		}
	}
}

func FuzzPod(f *testing.F) {
	seed, err := json.Marshal(formatPod(somePod()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"ports":[{"protocol":"x"}],"podCIDRs":[""]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parsePod(data)
		if err != nil {
			return
		}
		text, err := json.Marshal(formatPod(p))
		if err != nil {
			t.Fatal(err)
		}
		again, err := parsePod(text)
		if diff := cmp.Diff(p, again, comparePods, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("%s: %v (-before +after):\n%s", text, err, diff)
		}
	})
}

func FuzzPodQuery(f *testing.F) {
	f.Add(PodRequest{"default", "web", "u"}.query())
	f.Add("name=x")
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := parsePodQuery(raw)
		if err != nil {
			return
		}
		if again, err := parsePodQuery(r.query()); err != nil || again != r {
			t.Errorf("%q: %+v became %+v, %v", raw, r, again, err)
		}
	})
}

func BenchmarkAskPod(b *testing.B) {
	socket := filepath.Join(b.TempDir(), "agent.sock")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, socket, waiter{pod: func(context.Context, PodRequest) (Pod, error) { return somePod(), nil }})
	}()
	eventually.Nil(b, "the agent to listen", func() error { return Ping(ctx, socket, "") })
	for b.Loop() {
		if _, err := AskPod(ctx, socket, PodRequest{Namespace: "default", Name: "web"}); err != nil {
			b.Fatal(err)
		}
	}
	cancel()
	<-done
}
