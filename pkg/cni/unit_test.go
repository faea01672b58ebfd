// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// TestReadyThatDoesNotParse: it is not the same as false, and nothing to wait for.
func TestReadyThatDoesNotParse(t *testing.T) {
	v := newView()
	k := model.ReadyKey{}
	v.entries[k] = model.Entry{Path: k.Path(), Key: k, Err: errors.New(`"banana": want true or false`), Revision: 1}
	e := explain(v.checkReady())
	if want := `/calico/v1/Ready: "banana": want true or false`; e.Code != CodeData || e.Text != want || e.Hint == "" {
		t.Errorf("got %d %s, want %d %s", e.Code, e.Text, CodeData, want)
	}
}

func TestFirstOf(t *testing.T) {
	var errs []error
	for i := range 5 {
		errs = append(errs, fmt.Errorf("cause %d", i+1))
	}
	if err := firstOf(nil); err != nil {
		t.Error(err)
	}
	if got := fail(CodeKernel, firstOf(errs[:3]), "").Text; got != "cause 1; cause 2; cause 3" {
		t.Error(got)
	}
	if got := fail(CodeKernel, firstOf(errs), "").Text; got != "cause 1; cause 2; cause 3; and 2 more" {
		t.Error(got)
	}
}

func TestIdentity(t *testing.T) {
	e := environ{containerID: "0123abc", ifName: "eth0"}
	id := newIdentity("net1", "node-1", e)
	if got := id.key.Path(); got != "/calico/v1/host/node-1/workload/cni/0123abc/endpoint/eth0" {
		t.Error(got)
	}
	e.args = netconf.Args{PodNamespace: "default", PodName: "web-0"}
	id = newIdentity("net1", "node-1", e)
	if got := id.key.Path(); got != "/calico/v1/host/node-1/workload/k8s/default.web-0/endpoint/eth0" {
		t.Error(got)
	}
	if id.handle != "net1.0123abc.eth0" || id.alias != "calico net1.0123abc.eth0" {
		t.Errorf("handle %s, alias %s", id.handle, id.alias)
	}
	// SHA-1 of default.web-0 and of default.web-0.net1.
	if got := hostInterface("default.web-0", "eth0"); got != "cali0d7763386da" {
		t.Error(got)
	}
	if got := hostInterface("default.web-0", "net1"); got == hostInterface("default.web-0", "eth0") || len(got) != 15 {
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
		alias := linkAlias(tt.network, handleID(tt.network, tt.container, "eth0"))
		if len(alias) > maxAlias || !isOurAlias(alias) {
			t.Errorf("alias %q", alias)
		}
		for _, n := range tt.mine {
			if !aliasOfNetwork(alias, n) {
				t.Errorf("%q is not of %s", alias, n)
			}
		}
		for _, n := range tt.others {
			if aliasOfNetwork(alias, n) {
				t.Errorf("%q is of %s", alias, n)
			}
		}
	}
	if linkAlias("n", long+"1") == linkAlias("n", long+"2") {
		t.Error("two handles have one alias")
	}
}

func TestPodMAC(t *testing.T) {
	mac := podMAC("net1.c1.eth0")
	if mac != podMAC("net1.c1.eth0") || mac == podMAC("net1.c2.eth0") || mac[0]&0x03 != 0x02 {
		t.Errorf("MAC %s", mac)
	}
}

func TestUndo(t *testing.T) {
	var u undoStack
	var order []string
	for _, name := range []string{"a", "b", "c"} {
		u.push(name, func(context.Context) error {
			order = append(order, name)
			return errors.New("refused")
		})
	}
	u.run(quiet())
	u.run(quiet())
	if !slices.Equal(order, []string{"c", "b", "a"}) {
		t.Errorf("undone in the order %v", order)
	}
}

func TestPanicInAGoroutine(t *testing.T) {
	s := &session{log: quiet()}
	err := s.async(func() error { panic("boom") }).wait()
	if e := explain(err); e.Code != CodeInternal || !strings.Contains(e.Text, "boom") {
		t.Errorf("%+v", e)
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
		{errors.Join(failf(CodeKernel, "x", "y"), store.ErrUnavailable), CodeKernel},
		{errors.New("anything"), CodeInternal},
		{fail(CodeIO, errors.New("no space"), ""), CodeIO},
		{fail(CodeKernel, errors.New("no buffers"), ""), CodeKernel},
		{fmt.Errorf("decide: %w", &ipam.InvalidError{}), CodeData},
		{&types.Error{Code: 999, Msg: "theirs"}, 999},
	} {
		if got := explain(tt.err); got.Code != tt.code || got.Hint == "" {
			t.Errorf("%v: code %d and hint %q, want %d", tt.err, got.Code, got.Hint, tt.code)
		}
	}
	// Either field may be the one that is set.
	for _, field := range []string{"etcd_endpoints", "etcd_discovery_srv"} {
		if got := explain(store.ErrUnavailable); !strings.Contains(got.Hint, field) {
			t.Errorf("the hint %q doesn't name %s", got.Hint, field)
		}
	}
	// Where the host gets no other blocks another pool doesn't help.
	if got := explain(&ipam.ExhaustedError{Fixed: true}); got.Code != CodeExhausted || !strings.Contains(got.Hint, "auto_allocate_blocks in /calico/ipam/v2/config") {
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

// TestRunNeverSilent feeds calls that end early: each writes an error object and
// nothing else to stdout.
func TestRunNeverSilent(t *testing.T) {
	for _, env := range []map[string]string{
		{}, {"CNI_COMMAND": "X"}, {"CNI_COMMAND": "ADD"}, {"CNI_COMMAND": "STATUS"},
	} {
		var out strings.Builder
		code := Call{
			Plugin: Calico, Getenv: func(k string) string { return env[k] },
			Stdin: strings.NewReader("{}"), Stdout: &out, Stderr: io.Discard,
		}.Run(t.Context())
		if code != 1 || !strings.HasPrefix(out.String(), "{\n    \"cniVersion\": ") {
			t.Errorf("%v: exit code %d, %s", env, code, out.String())
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
		code, answered := CalicoIPAM.answer(tt.arg, tt.command, "v1", &out)
		if answered != (tt.want != "") || code != tt.code || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: exit code %d, %v, %s", tt.arg, code, answered, &out)
		}
	}
}
