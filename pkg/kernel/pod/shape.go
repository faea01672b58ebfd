// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"math"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/vishvananda/netlink"
)

// The settings of a token bucket filter (sch_tbf.c).
const (
	// minBurst is the least burst in bytes: a few packets.
	minBurst = 16 << 10
	// burstPart is the burst as a part of a second's bytes: with less, a rate of gigabits isn't reached with timers as coarse as the
	// kernel's.
	burstPart = 20
	// queuePart is the part of a second's bytes that may wait; the rest is dropped, as on a slow line.
	queuePart = 20
	// mostAtOnce bounds both: the kernel counts them in 32 bits.
	mostAtOnce = math.MaxUint32 / 4
)

// shape limits what the workload receives, where the host sends it, and what it sends, where the workload sends it: so the workload waits
// and its packets aren't lost, and nothing else must be created or cleaned up. Both filters end with the veth. A workload with
// CAP_NET_ADMIN could lift the limit on what it sends.
func (v Veth) shape(n *Namespace, host *rtnl.Conn, pod link.Link) error {
	if v.Ingress != 0 {
		if err := host.QdiscAdd(bucket(pod.Parent, pod.MTU, v.Ingress)); err != nil {
			return err
		}
	}
	if v.Egress != 0 {
		return n.conn.QdiscAdd(bucket(pod.Index, pod.MTU, v.Egress))
	}
	return nil
}

// bucket returns a filter for a rate in bits per second.
func bucket(index, mtu int, rate uint64) *netlink.Tbf {
	perSecond := rate / 8
	burst := min(max(perSecond/burstPart, minBurst, 2*uint64(mtu)), mostAtOnce)
	// The kernel takes the burst as its duration, in ticks.
	ticks := float64(burst) / float64(perSecond) * netlink.TickInUsec() * 1e6
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       perSecond,
		Buffer:     uint32(min(ticks, math.MaxUint32)),
		Limit:      uint32(burst + min(perSecond/queuePart, mostAtOnce)),
	}
}
