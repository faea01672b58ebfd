// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// Users of a lab's etcd with Config.Auth.
const (
	EtcdUser     = "calico" // may read and write below /calico/
	EtcdRootUser = "root"
)

// Members are the members of the lab's etcd, numbered from 1.
type Members struct {
	dir     string // the lab's
	state   *state
	fabric  *fabric
	procs   *processes
	control *http.Client // for MemberConfig.Control; the host in a URL is the member's name
}

func newMembers(l *Lab) *Members {
	m := &Members{dir: l.dir, state: &l.state, fabric: l.fabric, procs: l.procs}
	dialer := net.Dialer{}
	m.control = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			name, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			return dialer.DialContext(ctx, "unix", m.file(name+".control"))
		},
	}}
	return m
}

// memberName returns the role of member i, which is also the name of its log and sockets.
func memberName(i int) string { return fmt.Sprintf("etcd%d", i) }

func (m *Members) file(name string) string { return filepath.Join(m.dir, "etcd", name) }

func (m *Members) url(i int) string {
	scheme := "http"
	if m.state.TLS {
		scheme = "https"
	}
	return scheme + "://" + netip.AddrPortFrom(memberAddr(false, i).Addr(), 2379).String()
}

// socket returns the URL at which a process outside the fabric reaches member i. Clients check the certificate for the
// last element of the path, those of etcd 3.4 for all of it.
func (m *Members) socket(i int) string {
	scheme := "unix"
	if m.state.TLS {
		scheme = "unixs"
	}
	return scheme + "://" + m.file(memberName(i))
}

func (m *Members) each(text func(i int) string) []string {
	var texts []string
	for i := range m.state.EtcdMembers {
		texts = append(texts, text(i+1))
	}
	return texts
}

// Endpoints returns etcd's client URLs for the hosts.
func (m *Members) Endpoints() []string { return m.each(m.url) }

// Sockets returns etcd's client URLs for processes outside the lab's namespaces.
func (m *Members) Sockets() []string { return m.each(m.socket) }

// CalicoctlEnv returns the environment with which calicoctl works anywhere on the machine.
func (m *Members) CalicoctlEnv() []string { return m.env(m.Sockets()) }

// env returns the environment that tells Calico's programs where etcd is.
func (m *Members) env(endpoints []string) []string {
	env := []string{"ETCD_ENDPOINTS=" + strings.Join(endpoints, ",")}
	if m.state.TLS {
		env = append(env, "ETCD_CA_CERT_FILE="+m.PKI("ca.crt"), "ETCD_CERT_FILE="+m.PKI("client.crt"), "ETCD_KEY_FILE="+m.PKI("client.key"))
	}
	if m.state.Auth {
		env = append(env, "ETCD_USERNAME="+EtcdUser, "ETCD_PASSWORD_FILE="+m.PasswordFile())
	}
	return env
}

// EtcdctlEnv returns the environment with which etcdctl works anywhere on the machine.
func (m *Members) EtcdctlEnv() []string {
	env := []string{"ETCDCTL_API=3", "ETCDCTL_ENDPOINTS=" + strings.Join(m.Sockets(), ",")}
	if m.state.TLS {
		env = append(env, "ETCDCTL_CACERT="+m.PKI("ca.crt"), "ETCDCTL_CERT="+m.PKI("client.crt"), "ETCDCTL_KEY="+m.PKI("client.key"))
	}
	if m.state.Auth {
		env = append(env, "ETCDCTL_USER="+EtcdUser, fmt.Sprintf("ETCDCTL_PASSWORD=\"$(cat %s)\"", m.PasswordFile()))
	}
	return env
}

// PKI returns the path of a certificate file, with Config.TLS: ca.crt, client.crt, client.key, other-ca.crt (which has
// signed no certificate of etcd).
func (m *Members) PKI(file string) string { return filepath.Join(m.dir, "pki", file) }

// PasswordFile returns the path of the file with the password of EtcdUser, with Config.Auth.
func (m *Members) PasswordFile() string { return m.file("password") }

// startAll configures and starts all members and waits for a leader.
func (m *Members) startAll(ctx context.Context) error {
	var users []MemberUser
	if m.state.Auth {
		users = []MemberUser{
			{Name: EtcdRootUser, Password: rand.Text()},
			{Name: EtcdUser, Password: rand.Text(), Prefix: "/calico/"},
		}
		for file, user := range map[string]MemberUser{m.file("root-password"): users[0], m.PasswordFile(): users[1]} {
			if err := os.WriteFile(file, []byte(user.Password+"\n"), 0o600); err != nil {
				return err
			}
		}
	}
	if m.state.TLS {
		if err := m.makeCertificates(); err != nil {
			return fmt.Errorf("make certificates: %w", err)
		}
	}
	peer := func(i int) string {
		return "http://" + netip.AddrPortFrom(memberAddr(false, i).Addr(), 2380).String()
	}
	cluster := m.each(func(i int) string { return memberName(i) + "=" + peer(i) })
	for i := 1; i <= m.state.EtcdMembers; i++ {
		cfg := MemberConfig{
			Name: memberName(i), DataDir: m.state.DataDir, PeerURL: peer(i), Cluster: strings.Join(cluster, ","),
			ClientURLs: []string{m.url(i), m.socket(i)}, Control: m.file(memberName(i) + ".control"),
			NoFsync: m.state.NoFsync, Quota: m.state.EtcdQuota,
		}
		if i == 1 {
			cfg.Users = users
		}
		if m.state.TLS {
			cfg.CAFile, cfg.CertFile, cfg.KeyFile = m.PKI("ca.crt"), m.PKI("etcd.crt"), m.PKI("etcd.key")
		}
		config := m.file(memberName(i) + ".json")
		if err := writeJSON(config, cfg); err != nil {
			return err
		}
		if err := os.Chmod(config, 0o600); err != nil { // it may contain passwords
			return err
		}
	}
	for i := range m.state.EtcdMembers {
		if err := m.launch(i + 1); err != nil {
			return err
		}
	}
	return m.Wait(ctx)
}

func (m *Members) launch(i int) error {
	if err := m.check(i); err != nil {
		return err
	}
	_, err := m.procs.start(spec{
		role: memberName(i), ns: m.fabric.ns,
		path: filepath.Join(m.state.BinDir, "calico-lab"), args: []string{"etcd", m.file(memberName(i) + ".json")},
		env: os.Environ(), dir: m.state.DataDir,
	})
	return err
}

func (m *Members) check(i int) error {
	if i < 1 || i > m.state.EtcdMembers {
		return fmt.Errorf("etcd member %d: the lab has 1 to %d", i, m.state.EtcdMembers)
	}
	return nil
}

// Wait waits until every running member knows the leader and, with Config.Auth, authentication is enabled.
func (m *Members) Wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for i := 1; i <= m.state.EtcdMembers; i++ {
		p, err := m.Process(i)
		if err != nil {
			return err
		}
		if p == nil {
			continue
		}
		err = p.await(ctx, memberName(i)+" to know the leader", func() error {
			s, err := m.Status(ctx, i)
			if err == nil && (s.Leader == 0 || s.Auth != m.state.Auth) {
				err = fmt.Errorf("leader %d, authentication %t", s.Leader, s.Auth)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Leader returns the number of the leading member. It waits for an election until ctx ends.
func (m *Members) Leader(ctx context.Context) (leader int, err error) {
	err = eventually.Wait(ctx, "etcd to have a leader", func() error {
		err := errors.New("no member leads")
		for i := 1; i <= m.state.EtcdMembers; i++ {
			s, e := m.Status(ctx, i)
			if e == nil && s.Leader == s.ID {
				leader = i
				return nil
			}
			err = errors.Join(err, e)
		}
		return err
	})
	return leader, err
}

// Process returns the process of member i; nil if it doesn't run.
func (m *Members) Process(i int) (*Process, error) {
	if err := m.check(i); err != nil {
		return nil, err
	}
	p, err := m.procs.find(memberName(i))
	if errors.Is(err, os.ErrProcessDone) {
		return nil, nil
	}
	return p, err
}

// Kill kills member i at once, as a power cut would.
func (m *Members) Kill(i int) error { return m.with(i, (*Process).Kill) }

// Start starts member i again with its former data.
func (m *Members) Start(ctx context.Context, i int) error {
	if err := m.launch(i); err != nil {
		return err
	}
	return m.Wait(ctx)
}

// Pause stops member i; it has stopped when Pause returns. Connections to it stay open without answers until Resume.
func (m *Members) Pause(i int) error { return m.with(i, (*Process).Pause) }

// Resume continues a paused member.
func (m *Members) Resume(i int) error { return m.with(i, (*Process).Resume) }

func (m *Members) with(i int, fn func(*Process) error) error {
	p, err := m.Process(i)
	if err != nil {
		return err
	}
	if p == nil {
		return fmt.Errorf("etcd member %d does not run", i)
	}
	return fn(p)
}
