// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

func TestReadable(t *testing.T) {
	errBad := errors.New("want always")
	pool := model.PoolKey{CIDR: netip.MustParsePrefix("10.65.0.0/16")}
	host := model.HostEndpointKey{Host: "h", Endpoint: "e"}
	as, block := model.BGPGlobalASKey{}, model.BlockKey{CIDR: netip.MustParsePrefix("10.65.0.0/26")}
	entry := func(k model.Key, v any) model.Entry {
		e := model.Entry{Path: k.Path(), Key: k, Revision: 7}
		if e.Value = v; v == nil {
			e.Err = errBad
		}
		return e
	}
	gone := model.Entry{Path: pool.Path(), Key: pool}
	on := model.HostEndpoint{Name: "eth0"}
	policy, labels := model.PolicyKey{Tier: "default", Policy: "p"}, model.ProfileLabelsKey{Profile: "p"}
	picks := model.Policy{Selector: "has(a)", Inbound: []model.Rule{{Action: model.ActionDeny}}}
	badPolicy, badHost := entry(policy, nil), entry(host, nil)
	badPolicy.Err = &model.InvalidPolicyError{Selector: "has(b)", Err: errBad}
	badHost.Err = &model.InvalidHostEndpointError{On: model.HostEndpoint{Name: "eth1"}, Err: errBad}
	set, office := model.NetworkSetKey{Name: "office"}, model.NetworkSet{Labels: map[string]string{"role": "x"}}
	good, other := model.Pool{CIDR: pool.CIDR, VXLANMode: model.EncapAlways}, model.Pool{CIDR: pool.CIDR}
	suffix := func(e model.Entry) string {
		switch until, _ := untilCorrected(e.Key); {
		case e.Key == host:
			return "" // the policy engine knows more
		case e.Value != nil:
			return "; until it is corrected, " + until
		case e.Key == policy:
			return "; until it is corrected, it has no effect, as it isn't known what it is for"
		}
		return ""
	}
	var r readable
	for i, step := range []struct {
		resync  bool
		entries []model.Entry
		want    []any
	}{
		{true, []model.Entry{entry(pool, good), entry(as, nil), entry(block, model.Block{})}, []any{good, nil, model.Block{}}},
		{false, []model.Entry{entry(pool, nil), entry(block, nil)}, []any{good, nil}},
		{false, []model.Entry{entry(pool, nil)}, []any{good}},                     // broken twice
		{true, []model.Entry{entry(as, nil), entry(pool, nil)}, []any{nil, good}}, // etcd was away
		{false, []model.Entry{entry(pool, other), entry(as, model.ASNumber(1))}, []any{other, model.ASNumber(1)}},
		{false, []model.Entry{entry(pool, nil), entry(as, nil)}, []any{other, model.ASNumber(1)}},
		{false, []model.Entry{gone}, []any{nil}},
		{false, []model.Entry{entry(pool, nil)}, []any{nil}}, // made anew, and unreadable
		{true, []model.Entry{entry(pool, good)}, []any{good}},
		{true, []model.Entry{entry(as, nil)}, []any{nil}}, // gone meanwhile
		{false, []model.Entry{entry(pool, nil)}, []any{nil}},
		{true, []model.Entry{entry(host, nil), entry(policy, nil), entry(labels, nil)}, []any{nil, nil, nil}}, // when the agent started
		{false, []model.Entry{entry(host, on)}, []any{on}},
		{false, []model.Entry{entry(host, nil)}, []any{on}},
		{false, []model.Entry{badHost}, []any{model.HostEndpoint{Name: "eth1"}}}, // as much as can be read comes first
		{false, []model.Entry{entry(host, nil)}, []any{model.HostEndpoint{Name: "eth1"}}},
		{false, []model.Entry{entry(policy, picks), entry(labels, model.Labels{"a": "b"})}, []any{picks, model.Labels{"a": "b"}}},
		{false, []model.Entry{entry(policy, nil), entry(labels, nil)}, []any{picks, model.Labels{"a": "b"}}},
		{false, []model.Entry{badPolicy}, []any{model.Policy{Selector: "has(b)"}}},
		{false, []model.Entry{entry(set, office)}, []any{office}},
		{false, []model.Entry{entry(set, nil)}, []any{office}},
		{false, []model.Entry{entry(policy, nil)}, []any{model.Policy{Selector: "has(b)"}}},
	} {
		r.fill(model.Update{Resync: step.resync, Entries: step.entries})
		for j, e := range step.entries {
			switch {
			case !reflect.DeepEqual(e.Value, step.want[j]):
				t.Errorf("step %d: %s holds %v, want %v", i, e.Path, e.Value, step.want[j])
			case e.Err == nil:
			case !errors.Is(e.Err, errBad):
				t.Errorf("step %d: %s: %v", i, e.Path, e.Err)
			case e.Value != nil && errors.As(e.Err, new(*model.InvalidPolicyError)):
				if e.Err != badPolicy.Err {
					t.Errorf("step %d: %s: %v", i, e.Path, e.Err)
				}
			case !strings.HasSuffix(e.Err.Error(), suffix(e)) || strings.Contains(e.Err.Error(), "until") != (suffix(e) != ""):
				t.Errorf("step %d: %s, with %v: %v", i, e.Path, e.Value, e.Err)
			}
		}
	}
}

// TestSlipAmongAddresses: a host endpoint stays as it was until all its addresses are valid.
func TestSlipAmongAddresses(t *testing.T) {
	key := model.HostEndpointKey{Host: "h", Endpoint: "e"}
	const good = `{"expected_ipv4_addrs": ["192.0.2.10"]}`
	for _, tt := range []struct {
		values []string
		want   string // the interface after the last
	}{
		{[]string{good, `{"expected_ipv4_addrs": ["192.0.2.1O", "192.0.2.99"]}`}, "eth0"},
		{[]string{good, `{"expected_ipv4_addrs": ["192.0.2.1O", "192.0.2.99"]}`, `{"expected_ipv4_addrs": ["192.0.2.10"`}, "eth0"},
		{[]string{good, `{"expected_ipv4_addrs": ["192.0.2.1O", "192.0.2.20"]}`}, "eth0"}, // as it will be on when that is corrected
		{[]string{good, `{"expected_ipv4_addrs": "192.0.2.10", "expected_ipv6_addrs": ["fd00::99"]}`}, "eth0"},
		{[]string{`{"name": "eth0"}`, `{"expected_ipv4_addrs": ["192.0.2.1O", "192.0.2.99"]}`}, "eth0"},
		{[]string{good, `{"expected_ipv4_addrs": ["192.0.2.1O"], "name": "eth1"}`}, "eth1"},
		{[]string{good, `{"expected_ipv4_addrs": ["192.0.2.20"], "labels": 5}`}, "eth1"},
		{[]string{`{"expected_ipv4_addrs": ["192.0.2.1O", "192.0.2.20"]}`}, "eth1"},
		{[]string{`{"expected_ipv4_addrs": ["192.0.2.1O", "192.0.2.99"]}`}, ""},
	} {
		for _, resync := range []bool{false, true} {
			var r readable
			e := policy.NewEngine("h")
			e.SetPrefixes([]string{"cali"})
			e.SetInterfaces([]policy.Interface{
				{Name: "eth0", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}},
				{Name: "eth1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.20")}},
			})
			on, err := "", error(nil)
			for i, value := range tt.values {
				entry := put(key, nil, int64(i+1))
				entry.Value, entry.Err = model.ParseValue(key, []byte(value))
				u := model.Update{Resync: resync, Entries: []model.Entry{entry}}
				r.fill(u)
				e.Update(u.Entries...)
				if ep, told := e.Flush().Endpoints[key.Path()]; told {
					on = ep.Interface
				}
				err = u.Entries[0].Err
			}
			if on != tt.want || err == nil {
				t.Errorf("%q, resync: %v: on %q, want %q: %v", tt.values, resync, on, tt.want, err)
			}
		}
	}
}
