// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/model"
)

// crowd is how many endpoints a full host has.
const crowd = 1000

// fill makes a host of many endpoints, all with their veths. Their other ends
// are in one namespace: nothing flows.
func fill(b *testing.B) (h *host, wire func(n int) *testPod) {
	b.Helper()
	h = newHost(b)
	h.put(model.ReadyKey{}, model.Ready(true))
	shared := h.newPod(0)
	wire = func(n int) *testPod {
		p := &testPod{host: h, ns: shared.ns, spec: model.WorkloadEndpoint{State: model.StateActive}}
		v4, v6 := podAddrs(n)
		p.key = model.WorkloadEndpointKey{Host: h.name, Orchestrator: "k8s", Workload: fmt.Sprintf("default.pod-%d", n), Endpoint: "eth0"}
		p.spec.Name = fmt.Sprintf("cali%d", n)
		p.spec.IPv4Nets, p.spec.IPv6Nets = []netip.Prefix{hostNet(v4)}, []netip.Prefix{hostNet(v6)}
		p.spec.Labels = map[string]string{"app": "web", "calico/k8s_ns": "default", "pod-template-hash": "5d4f8c7b9"}
		p.spec.ProfileIDs = []string{"k8s_ns.default"}
		p.spec.ContainerID = fmt.Sprintf("%064d", n)
		mac, _, err := pod.CreateVeth(p.ns, pod.Veth{HostName: p.spec.Name, PodName: p.spec.Name, MTU: 1450, Alias: "calico bench"})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(p.unwire)
		p.spec.MAC = mac
		return p
	}
	for n := 1; n <= crowd; n++ {
		p := wire(n)
		p.put()
	}
	return h, wire
}

// BenchmarkColdStart1000 starts an agent on a full host of which nothing is programmed.
func BenchmarkColdStart1000(b *testing.B) {
	h, _ := fill(b)
	var memory []float64
	for b.Loop() {
		cmd := h.spawn()
		h.ready()
		b.StopTimer()
		if n := h.metric(`calico_node_endpoints{status="up"}`); n != crowd {
			b.Fatalf("programmed: %v", n)
		}
		memory = append(memory, peakMemory(b, cmd))
		h.kill(cmd)
		h.ip("-4", "route", "flush", "proto", strconv.Itoa(link.RouteProtocol))
		h.ip("-6", "route", "flush", "proto", strconv.Itoa(link.RouteProtocol))
		b.StartTimer()
	}
	b.ReportMetric(slices.Max(memory), "peak-MiB")
}

// BenchmarkRestart1000 starts an agent on a full host where all is right.
func BenchmarkRestart1000(b *testing.B) {
	h, _ := fill(b)
	first := h.spawn()
	h.ready()
	h.kill(first)
	for b.Loop() {
		cmd := h.spawn()
		h.ready()
		b.StopTimer()
		if n := h.metric("calico_node_kernel_writes_total"); n != 0 {
			b.Fatalf("writes: %v", n)
		}
		h.kill(cmd)
		b.StartTimer()
	}
}

// BenchmarkOneNewAmong1000 is the time from the commit of a new endpoint to the
// gate's answer, on a full host.
func BenchmarkOneNewAmong1000(b *testing.B) {
	h, wire := fill(b)
	cmd := h.spawn()
	h.ready()
	n := crowd
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		n++
		p := wire(n)
		revision := p.put()
		b.StartTimer()
		start := time.Now()
		h.mustPass(p.key, revision)
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(peakMemory(b, cmd), "peak-MiB")
}

// BenchmarkIdle1000 is the processor time that the agent of a full host takes
// while nothing changes; an operation is one second.
func BenchmarkIdle1000(b *testing.B) {
	h, _ := fill(b)
	cmd := h.spawn()
	h.ready()
	time.Sleep(2 * time.Second) // reports are written meanwhile
	start, began := cpuTime(b, cmd), time.Now()
	for b.Loop() {
		time.Sleep(time.Second)
	}
	used := cpuTime(b, cmd) - start
	b.ReportMetric(float64(used.Microseconds())/1000/time.Since(began).Seconds(), "cpu-ms/s")
	b.ReportMetric(peakMemory(b, cmd), "peak-MiB")
}

// BenchmarkLinksGone1000 is what it takes the agent of a full host that the links of all endpoints are deleted, one by one;
// an operation is all of them.
func BenchmarkLinksGone1000(b *testing.B) {
	h, wire := fill(b)
	cmd := h.spawn()
	h.ready()
	count := func(status string) {
		b.Helper()
		h.until("all are "+status, func() bool { return h.metric(`calico_node_endpoints{status="`+status+`"}`) == crowd })
	}
	used := time.Duration(0)
	for b.Loop() {
		b.StopTimer()
		count("up")
		time.Sleep(2 * time.Second) // reports are written meanwhile
		start := cpuTime(b, cmd)
		b.StartTimer()
		for n := 1; n <= crowd; n++ {
			if err := link.Delete(fmt.Sprintf("cali%d", n)); err != nil {
				b.Fatal(err)
			}
		}
		count("down")
		b.StopTimer()
		used += cpuTime(b, cmd) - start
		for n := 1; n <= crowd; n++ {
			wire(n).put()
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(used.Microseconds())/1000/float64(b.N)/crowd, "cpu-ms/link")
}

// peakMemory is the most that the process ever had resident, in MiB.
func peakMemory(b *testing.B, cmd *exec.Cmd) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); fields[0] == "VmHWM:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib / 1024
		}
	}
	b.Fatal("no VmHWM")
	return 0
}

// cpuTime is what the process has used so far.
func cpuTime(b *testing.B, cmd *exec.Cmd) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest) // from the third, "state", on
	var ticks time.Duration
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond // USER_HZ is 100
}
