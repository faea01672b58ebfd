// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"encoding/binary"
	"fmt"
	"net"
	"testing"

	"github.com/calico-go/calico/test/long"
)

// timestamps are queries of ICMP for the time, and their answers.
func (r *rig) timestamps(from, to *place) *stream {
	r.Helper()
	const request, answer, id = 13, 14, 0x77
	s := r.stream(fmt.Sprintf("timestamps from %s to %s", from.name, to.name))
	var conn net.PacketConn
	err := from.ns.Do(func() (err error) {
		conn, err = net.ListenPacket("ip4:icmp", from.addrs[0].String())
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	s.closers = append(s.closers, conn)
	buf := make([]byte, 64)
	s.receive(func() (int64, error) {
		for {
			n, _, err := conn.ReadFrom(buf)
			if err != nil {
				return 0, err
			}
			if n >= 8 && buf[0] == answer && binary.BigEndian.Uint16(buf[4:]) == id {
				return 1, nil
			}
		}
	})
	s.send(func(n int64) error {
		m := make([]byte, 20)
		m[0] = request
		binary.BigEndian.PutUint16(m[4:], id)
		binary.BigEndian.PutUint16(m[6:], uint16(n))
		sum := uint32(0)
		for i := 0; i < len(m); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(m[i:]))
		}
		binary.BigEndian.PutUint16(m[2:], ^uint16(sum+sum>>16))
		_, err := conn.WriteTo(m, &net.IPAddr{IP: to.addrs[0].AsSlice()})
		return err
	})
	return s
}

// TestCutICMP has a policy deny one kind of query while two run.
func TestCutICMP(t *testing.T) {
	long.Test(t)
	r := newRig(t)
	server, client := r.pod("server", [2]string{"role", "server"}), r.pod("client")
	r.policy("yes", `{"selector": "role == 'server'", "order": 10, "types": ["inbound"], "inbound_rules": [{"action": "allow"}]}`)
	r.enforced()
	times, echoes := r.timestamps(client, server), r.ping(client, server.addrs[0])
	r.flows("before", times, echoes)
	r.policy("no", `{"selector": "role == 'server'", "order": 1, "types": ["inbound"], "inbound_rules": [{"action": "deny", "protocol": "icmp", "icmp_type": 13}]}`)
	r.enforced()
	r.until("timestamps are cut", func() bool { return r.quiet(times, []*stream{times}) })
	r.flows("echo is allowed", echoes)
	r.policy("no", `{"selector": "role == 'server'", "order": 1, "types": ["inbound"], "inbound_rules": [{"action": "deny", "protocol": "icmp", "icmp_type": 8}]}`)
	r.enforced()
	r.until("echo is cut", func() bool { return r.quiet(times, []*stream{echoes}) })
	r.flows("timestamps are allowed", times)
}
