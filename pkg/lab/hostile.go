// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/calico-go/calico/pkg/model"
)

// A hostile lab resembles other people's hosts and networks: hardened, with a firewall and kube-proxy, and on wires
// that pass only what they know.

// hardened returns the sysctls of the CIS benchmarks and the like, except those that a host with containers can't have:
// it forwards. They are set after eth0 exists, as by a host's boot scripts.
func hardened() [][2]string {
	settings := [][2]string{
		{"ipv4/ip_forward", "1"}, {"ipv4/conf/default/forwarding", "0"}, // as Docker leaves it, and then the benchmark's script
		{"ipv4/conf/all/arp_ignore", "1"}, {"ipv4/conf/default/arp_ignore", "1"},
		{"ipv4/tcp_syncookies", "1"}, {"ipv4/icmp_echo_ignore_broadcasts", "1"},
	}
	for _, links := range []string{"all", "default", "eth0"} {
		for _, s := range [][2]string{
			{"rp_filter", "1"}, {"accept_source_route", "0"}, {"accept_redirects", "0"}, {"secure_redirects", "0"}, {"send_redirects", "0"}, {"log_martians", "1"},
		} {
			settings = append(settings, [2]string{"ipv4/conf/" + links + "/" + s[0], s[1]})
		}
	}
	return settings
}

// ServiceAddr is the address at which a hostile lab's hosts, and pods on them, reach the first etcd member at port 443,
// in the same way as the API server through kube-proxy.
const ServiceAddr = "10.96.0.1"

// neighbourhood has the tables of Docker or ufw, and of kube-proxy: a DROP in FORWARD, and services with destination
// NAT for pods and for the host itself, with a mark for traffic to masquerade.
const neighbourhood = `
table ip filter { chain FORWARD { type filter hook forward priority 0; policy drop; }; }
table ip6 filter { chain FORWARD { type filter hook forward priority 0; policy drop; }; }
table ip nat {
	chain KUBE-SERVICES { ip daddr ` + ServiceAddr + ` tcp dport 443 meta mark set meta mark or 0x4000 dnat to %s:2379; }
	chain PREROUTING { type nat hook prerouting priority dstnat; jump KUBE-SERVICES; }
	chain OUTPUT { type nat hook output priority -100; jump KUBE-SERVICES; }
	chain POSTROUTING { type nat hook postrouting priority srcnat; meta mark and 0x4000 != 0x4000 return; meta mark set meta mark xor 0x4000; masquerade fully-random; }
}
`

// restless is a table that its owner rewrites twice a second.
const restless = `
table inet restless { }
flush table inet restless
table inet restless {
	chain forward { type filter hook forward priority 5; ct state invalid counter drop; ip saddr 203.0.113.66 drop; ct state established,related accept; }
}
`

// harass configures a host of a hostile lab, before its agent starts.
func (h *Host) harass(ctx context.Context) error {
	if !h.lab.state.Hostile {
		return nil
	}
	err := h.ns.Do(func() error {
		var errs []error
		for _, s := range hardened() {
			errs = append(errs, writeSysctl("net/"+s[0], s[1]))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	if err := h.ns.nft(ctx, h.dir(), "neighbourhood.nft", fmt.Sprintf(neighbourhood, memberAddr(false, 1).Addr())); err != nil {
		return err
	}
	file := filepath.Join(h.dir(), "restless.nft")
	if err := os.WriteFile(file, []byte(restless), 0o644); err != nil {
		return err
	}
	_, err = h.lab.procs.startNamed("restless-"+h.name, h.ns, os.Environ(), "sh", []string{"-c", "while nft -f '" + file + "'; do sleep 0.5; done"})
	return err
}

// nft loads a text into a namespace's nftables, using a file.
func (n Namespace) nft(ctx context.Context, dir, file, text string) error {
	file = filepath.Join(dir, file)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	_, err := run(ctx, n, os.Environ(), "nft", "-f", file)
	return err
}

// distrust does so for all wires of a hostile lab.
func (l *Lab) distrust(ctx context.Context) error {
	for rack := range l.state.Racks + 1 {
		if !l.state.Hostile {
			break
		}
		if err := l.fabric.wire(rack).distrust(ctx, l.dir, l.cfg.pools()); err != nil {
			return err
		}
	}
	return nil
}

// distrust makes a wire and its router drop packets from addresses that they don't know, that is, from pods, unless
// pools have no encapsulation there.
func (w wire) distrust(ctx context.Context, dir string, pools []model.Pool) error {
	bridged, routed := true, true
	for _, p := range pools {
		mode := p.VXLANMode
		if mode == model.EncapNever {
			mode = p.IPIPMode
		}
		bridged, routed = bridged && mode == model.EncapAlways, routed && mode != model.EncapNever
	}
	const drop = `ip saddr != { 0.0.0.0, 172.16.0.0/12 } counter drop; ip6 saddr != { ::, fe80::/10, fd00:fa:b::/48 } counter drop;`
	text := ""
	if bridged {
		text += "table bridge distrust { chain forward { type filter hook forward priority 0; " + drop + " }; }\n"
	}
	if routed {
		// Bridged frames also pass here if br_netfilter is loaded.
		text += "table inet distrust { chain forward { type filter hook forward priority 0; iifname " + w.bridge + " oifname " + w.bridge + " accept; " + drop + " }; }\n"
	}
	return w.ns.nft(ctx, dir, fmt.Sprintf("distrust%d.nft", w.rack), text)
}
