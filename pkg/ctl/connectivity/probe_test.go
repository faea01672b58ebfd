// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/test/netns"
)

// TestMain is the commands of pods, in processes of their own: a process is in one namespace.
func TestMain(m *testing.M) {
	if os.Getenv("CONNECTIVITY") == "" {
		os.Exit(m.Run())
	}
	cmd := New(&session.Env{Stdout: os.Stdout})
	cmd.SetArgs(os.Args[1:])
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		os.Exit(1)
	}
}

// in starts a command of a pod in a namespace.
func in(t *testing.T, ns *os.File, args ...string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	cmd, out := exec.Command("/proc/self/exe", args...), new(strings.Builder)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "CONNECTIVITY=1"), out, os.Stderr
	netns.Within(t, ns, func() {
		if err := cmd.Start(); err != nil {
			t.Error(err)
		}
	})
	return cmd, out
}

// TestProbe is client and server against each other, with a network between them that takes less than the client's MTU.
func TestProbe(t *testing.T) {
	client, server := netns.New(t), netns.New(t)
	netns.Within(t, client, func() {
		netns.IP(t, "link", "add", "eth0", "mtu", "1450", "type", "veth", "peer", "name", "eth0", "mtu", "1450", "netns", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), server.Fd()))
	})
	for i, ns := range []*os.File{client, server} {
		netns.Within(t, ns, func() {
			netns.IP(t, "address", "add", fmt.Sprintf("10.0.0.%d/24", i+1), "dev", "eth0")
			netns.IP(t, "address", "add", fmt.Sprintf("fd00::%d/64", i+1), "dev", "eth0", "nodad")
			netns.IP(t, "link", "set", "eth0", "up")
			netns.IP(t, "link", "set", "lo", "up")
		})
	}
	serves, _ := in(t, server, "serve", "--port", "8080", "--name", "server-1")
	t.Cleanup(func() { _, _ = serves.Process.Kill(), serves.Wait() }) // it was killed
	const good, bad = "30s", "5s"                                     // what fails does so until time is up
	run := func(patience string, all ...probe) (failures []string) {
		t.Helper()
		text, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		cmd, out := in(t, client, "probe", "--for", patience, string(text))
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		outcomes, err := parseLog([]byte(out.String()))
		if err != nil || len(outcomes) != len(all) {
			t.Fatalf("%v: %s", err, out)
		}
		for _, o := range outcomes {
			failures = append(failures, o.Error)
		}
		return failures
	}
	var works []probe
	for _, a := range []string{"10.0.0.2", "fd00::2"} {
		at := netip.AddrPortFrom(netip.MustParseAddr(a), 8080).String()
		works = append(works, probe{Test: testPod, Target: at, Answer: "server-1"}, probe{Test: testHost, Target: at}, probe{Test: testMTU, Target: at, Answer: "server-1"},
			probe{Test: testDenied, Target: netip.AddrPortFrom(netip.MustParseAddr(a), 8081).String(), Answer: "server-1", Closed: true})
	}
	if diff := cmp.Diff(make([]string, len(works)), run(good, works...)); diff != "" {
		t.Errorf("what works (-want +got):\n%s", diff)
	}
	netns.Within(t, server, func() { netns.IP(t, "link", "set", "eth0", "mtu", "1400") }) // its end drops what is larger
	got := run(bad,
		probe{Test: testPod, Target: "10.0.0.2:8080", Answer: "server-2"}, probe{Test: testPod, Target: "10.0.0.2:8081", Answer: "server-1"},
		probe{Test: testOthers, Target: "10.0.0.2:8080", Answer: "server-1", Closed: true},
		probe{Test: testMTU, Target: "10.0.0.2:8080", Answer: "server-1"}, probe{Test: testMTU, Target: "[fd00::2]:8080", Answer: "server-1"},
		probe{Test: testDNS, Target: "x.invalid."},
	)
	want := []string{
		`"server-1" answers instead of server-2`, "dial tcp 10.0.0.2:8081: connect: connection refused", "reached, against the policy",
		"a packet of 1450 bytes, the pod's MTU, is lost", "a packet of 1450 bytes, the pod's MTU, is lost", "lookup x.invalid.: no such host",
	}
	if got[5] != "" { // whatever resolver is configured here, none is reached
		want[5] = got[5]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what doesn't (-want +got):\n%s", diff)
	}
}
