// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/store"
)

func TestIdentity(t *testing.T) {
	e := Environ{ContainerID: "0123abc", IfName: "eth0"}
	id := NewIdentity("net1", "node-1", e)
	if got := id.Key.Path(); got != "/calico/v1/host/node-1/workload/cni/0123abc/endpoint/eth0" {
		t.Error(got)
	}
	e.Args = netconf.Args{PodNamespace: "default", PodName: "web-0"}
	id = NewIdentity("net1", "node-1", e)
	if got := id.Key.Path(); got != "/calico/v1/host/node-1/workload/k8s/default.web-0/endpoint/eth0" {
		t.Error(got)
	}
	if id.Handle != "net1.0123abc.eth0" || id.Alias != "calico net1.0123abc.eth0" {
		t.Errorf("handle %s, alias %s", id.Handle, id.Alias)
	}
	// SHA-1 of default.web-0 and of default.web-0.net1.
	if got := HostInterface("default.web-0", "eth0"); got != "cali0d7763386da" {
		t.Error(got)
	}
	if got := HostInterface("default.web-0", "net1"); got == HostInterface("default.web-0", "eth0") || len(got) != 15 {
		t.Error(got)
	}
}

func TestAlias(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct {
		network, container string
		mine, others       []string
	}{
		{"net1", "c1", []string{"net1"}, []string{"net2", "net", "net1.c"}},
		{"net1", long, []string{"net1"}, []string{"net2", "net"}},
		{"a.b", "c", []string{"a.b", "a"}, []string{"b"}}, // "a" may be meant: gc asks etcd
	} {
		alias := LinkAlias(tt.network, HandleID(tt.network, tt.container, "eth0"))
		if len(alias) > maxAlias || !IsOurAlias(alias) {
			t.Errorf("alias %q", alias)
		}
		for _, n := range tt.mine {
			if !AliasOfNetwork(alias, n) {
				t.Errorf("%q is not of %s", alias, n)
			}
		}
		for _, n := range tt.others {
			if AliasOfNetwork(alias, n) {
				t.Errorf("%q is of %s", alias, n)
			}
		}
	}
	if LinkAlias("n", long+"1") == LinkAlias("n", long+"2") {
		t.Error("two handles have one alias")
	}
}

func TestPodMAC(t *testing.T) {
	mac := PodMAC("net1.c1.eth0")
	if mac != PodMAC("net1.c1.eth0") || mac == PodMAC("net1.c2.eth0") || mac[0]&0x03 != 0x02 {
		t.Errorf("MAC %s", mac)
	}
}

func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		err  error
		code uint
	}{
		{fmt.Errorf("read: %w", store.ErrUnavailable), CodeTryAgain},
		{fmt.Errorf("read: %w", store.ErrAuth), CodeAuth},
		{fmt.Errorf("read: %w", store.ErrDenied), CodeAuth},
		{fmt.Errorf("read: %w", store.ErrLimit), CodeTryAgain},
		{fmt.Errorf("commit: %w", store.ErrReadOnly), CodeReadOnly},
		{fmt.Errorf("commit: %w", &store.ConflictError{}), CodeTryAgain},
		{context.DeadlineExceeded, CodeTryAgain},
		{errors.Join(Failf(CodeKernel, "x", "y"), store.ErrUnavailable), CodeKernel},
		{errors.New("anything"), CodeInternal},
		{Fail(CodeIO, errors.New("no space"), ""), CodeIO},
		{Fail(CodeKernel, errors.New("no buffers"), ""), CodeKernel},
		{fmt.Errorf("decide: %w", &ipam.InvalidError{}), CodeData},
		{&types.Error{Code: 999, Msg: "theirs"}, 999},
	} {
		if got := Explain(tt.err); got.Code != tt.code || got.Hint == "" {
			t.Errorf("%v: code %d and hint %q, want %d", tt.err, got.Code, got.Hint, tt.code)
		}
	}
	// Either field may be the one that is set.
	for _, field := range []string{"etcd_endpoints", "etcd_discovery_srv"} {
		if got := Explain(store.ErrUnavailable); !strings.Contains(got.Hint, field) {
			t.Errorf("the hint %q doesn't name %s", got.Hint, field)
		}
	}
	// Where the host gets no other blocks another pool doesn't help.
	if got := Explain(&ipam.ExhaustedError{Fixed: true}); got.Code != CodeExhausted || !strings.Contains(got.Hint, "auto_allocate_blocks in /calico/ipam/v2/config") {
		t.Errorf("code %d and hint %q", got.Code, got.Hint)
	}
	for i, code := range []uint{100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110} {
		ours := []uint{
			CodeInternal, CodeAuth, CodeReadOnly, CodeNoPool, CodeExhausted, CodeAddress,
			CodeInterface, CodeCheck, CodeKernel, CodeRejected, CodeData,
		}
		if ours[i] != code {
			t.Errorf("code %d is documented as %d", ours[i], code)
		}
	}
}

func TestAnswer(t *testing.T) {
	for _, tt := range []struct {
		arg, command string
		code         int
		want         string // "": it isn't answered
	}{
		{"-version", "", 0, "calico-ipam v1\n"},
		{"--help", "", 0, "calico-ipam is a CNI IPAM plugin"},
		{"-h", "ADD", 0, "docs/debugging.md"},
		{"help", "", 0, "CNI_COMMAND      ADD,"},
		{"-foo", "", 1, `"msg": "unknown argument \"-foo\""`},
		{"ADD", "", 1, `"msg": "unknown argument \"ADD\""`},
		{"foo", "ADD", 0, ""}, // the runtime's call, whatever wraps it
	} {
		var out strings.Builder
		code, answered := CalicoIPAM.Answer(tt.arg, tt.command, "v1", &out)
		if answered != (tt.want != "") || code != tt.code || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: exit code %d, %v, %s", tt.arg, code, answered, &out)
		}
	}
}
