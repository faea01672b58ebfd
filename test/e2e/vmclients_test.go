// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

const vmV6 = "fd80:24e2:f998:72d6:f816:3eff:fe00:1"

// TestVMClients has DHCP clients of others get a machine's addresses. Nothing else passes: it has no profile.
func TestVMClients(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	l := newMachines(ctx, t, "a")
	pod := l.Host("a").Pod("pod").Addrs()[0].String()

	t.Run("udhcpc", func(t *testing.T) {
		m := newMachine(ctx, t, l, "a", "udhcpc")
		m.mustRun(ctx, "busybox", "udhcpc", "-f", "-q", "-n", "-i", "eth0", "-s", m.script(""), "-O", "mtu", "-O", "staticroutes")
		m.told("bound", map[string]string{
			"ip": "192.168.200.24", "subnet": "255.255.255.0", "router": "192.168.200.1", "dns": "192.168.200.53", "hostname": "udhcpc", "domain": "example.com",
			"serverid": "192.168.200.1", "lease": "86400", "mtu": "1400", "staticroutes": "169.254.169.254/32 192.168.200.2 0.0.0.0/0 192.168.200.1",
		})
		udhcpc := []string{"busybox", "udhcpc", "-f", "-q", "-n", "-t", "2", "-T", "1", "-i", "eth0", "-s", m.script("")}
		if out := m.mustRun(ctx, append(udhcpc, "-r", "192.168.200.25")...); !strings.Contains(out, "lease of 192.168.200.24 ") {
			t.Errorf("it asks for another's address:\n%s", out)
		}
		if err := errors.Join(m.host.Agent().Kill(), m.host.Agent().Start(ctx)); err != nil {
			t.Fatal(err)
		}
		m.mustRun(ctx, append(udhcpc, "-t", "10")...)
		m.mustRun(ctx, "ip", "link", "set", "eth0", "address", "fa:16:3e:00:00:99")
		if out, err := m.run(ctx, udhcpc...); err == nil {
			t.Errorf("another MAC address is answered:\n%s", out)
		}
		m.spec.State = model.StateInactive
		m.mustRun(ctx, "ip", "link", "set", "eth0", "address", m.spec.MAC.String())
		commit(ctx, t, l, model.Change{Puts: []model.Put{{Key: m.key(), Value: m.spec}}})
		eventually.Nil(t, "an inactive endpoint not to be served", func() error {
			if out, err := m.run(ctx, udhcpc...); err == nil {
				return errors.New(out)
			}
			return nil
		})
	})

	t.Run("dhclient", func(t *testing.T) {
		m := newMachine(ctx, t, l, "a", "dhclient")
		conf := filepath.Join(m.dir, "dhclient.conf")
		err := os.WriteFile(conf, []byte("option rfc3442-classless-static-routes code 121 = array of unsigned integer 8;\n"+
			"request subnet-mask, routers, domain-name-servers, host-name, domain-name, interface-mtu, rfc3442-classless-static-routes, dhcp6.name-servers, dhcp6.domain-search;\n"), 0o644)
		if err != nil {
			t.Fatal(err)
		}
		client := func(family string) func() {
			return m.start(ctx, "dhclient", family, "-d", "-cf", conf, "-lf", filepath.Join(m.dir, "leases"+family), "-pf", filepath.Join(m.dir, "pid"+family), "-sf", m.script(""), "eth0")
		}
		stop := client("-4")
		m.told("BOUND", map[string]string{
			"new_ip_address": "192.168.200.24", "new_subnet_mask": "255.255.255.0", "new_routers": "192.168.200.1", "new_domain_name_servers": "192.168.200.53",
			"new_host_name": "dhclient", "new_domain_name": "example.com", "new_interface_mtu": "1400", "new_dhcp_server_identifier": "192.168.200.1", "new_dhcp_lease_time": "86400",
			"new_dhcp_renewal_time": "43200", "new_dhcp_rebinding_time": "75600", "new_rfc3442_classless_static_routes": "32 169 254 169 254 192 168 200 2 0 192 168 200 1",
		})
		eventually.Nil(t, "the client to have written its lease", func() error {
			if log := fileText(t, filepath.Join(m.dir, "dhclient.log")); !strings.Contains(log, "bound to ") {
				return errors.New(log)
			}
			return nil
		})
		stop()
		stop = client("-4") // with a lease: INIT-REBOOT
		m.told("REBOOT", map[string]string{"new_ip_address": "192.168.200.24"})
		stop()
		eventually.Nil(t, "a link-local address to send from", func() error {
			out, err := m.run(ctx, "ip", "-6", "addr", "show", "dev", "eth0", "scope", "link", "-tentative")
			if out == "" {
				err = errors.Join(errors.New("there is none"), err)
			}
			return err
		})
		stop = client("-6")
		m.told("BOUND6", map[string]string{"new_ip6_address": vmV6, "new_dhcp6_name_servers": "fd80::53", "new_dhcp6_domain_search": "example.com.", "new_max_life": "86400", "new_renew": "43200", "new_rebind": "75600"})
		stop()
	})

	for _, slaac := range []bool{true, false} {
		name := "dhcpcd"
		if slaac {
			name = "dhcpcdslaac"
		}
		t.Run(name, func(t *testing.T) {
			m := newMachine(ctx, t, l, "a", name)
			conf := filepath.Join(m.dir, "dhcpcd.conf")
			text := "clientid\nslaac hwaddr\nnoipv4ll\nnohook resolv.conf, hostname\noption domain_name_servers, domain_name, host_name, interface_mtu, classless_static_routes\n"
			if !slaac {
				text += "ipv6ra_noautoconf\nia_na 1\n"
			} else {
				text += "nodhcp6\n"
			}
			if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			// Its directories are built in.
			m.start(ctx, "unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /var/lib/dhcpcd && mount -t tmpfs tmpfs /run && exec dhcpcd -B -f "+conf+" -c "+m.script("")+" eth0")
			m.told("BOUND", map[string]string{
				"new_ip_address": "192.168.200.24", "new_subnet_cidr": "24", "new_routers": "192.168.200.1", "new_domain_name_servers": "192.168.200.53", "new_host_name": name,
				"new_domain_name": "example.com", "new_interface_mtu": "1400", "new_classless_static_routes": "169.254.169.254/32 192.168.200.2 0.0.0.0/0 192.168.200.1",
			})
			if slaac {
				m.told("ROUTERADVERT", map[string]string{"nd1_addr1": vmV6 + "/64", "nd1_rdnss1_servers": "fd80::53", "nd1_from": "fe80::261:feff:feed:cafe"})
			} else {
				m.told("BOUND6", map[string]string{"new_dhcp6_ia_na1_ia_addr1": vmV6, "new_dhcp6_name_servers": "fd80::53"})
			}
			eventually.Nil(t, "its addresses and routes", func() error {
				addrs, routes := m.mustRun(ctx, "ip", "-o", "addr", "show", "dev", "eth0"), m.mustRun(ctx, "ip", "route")+m.mustRun(ctx, "ip", "-6", "route")
				for _, want := range []string{" 192.168.200.24/24 ", " " + vmV6 + "/"} {
					if !strings.Contains(addrs, want) {
						return fmt.Errorf("no%sin:\n%s", want, addrs)
					}
				}
				for _, want := range []string{"default via 192.168.200.1 ", "default via fe80::261:feff:feed:cafe ", "169.254.169.254 via 192.168.200.2 "} {
					if !strings.Contains(routes, want) {
						return fmt.Errorf("no %s in:\n%s", want, routes)
					}
				}
				return nil
			})
			// Of the whole subnet the host answers ARP at once.
			for _, a := range []string{"192.168.200.1", "192.168.200.2", "192.168.200.99"} {
				if out := m.mustRun(ctx, "busybox", "arping", "-f", "-w", "10", "-I", "eth0", a); !strings.Contains(out, "00:61:fe:ed:ca:fe") {
					t.Errorf("who has %s:\n%s", a, out)
				}
			}
			if out, err := m.run(ctx, "busybox", "ping", "-c", "2", "-W", "1", pod); err == nil || !strings.Contains(out, "2 packets transmitted, 0 packets received") {
				t.Errorf("%v: a pod is reached that no policy lets it reach:\n%s", err, out)
			}
		})
	}
}
