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
)

// Users of a lab's etcd with Config.Auth.
const (
	EtcdUser     = "calico" // may read and write below /calico/
	EtcdRootUser = "root"
)

// member is one etcd member, running or not.
type member struct {
	name    string // "etcd1": also its log's, record's and sockets' name
	config  string // file
	control *http.Client
}

func (l *Lab) newMember(i int) *member {
	name := fmt.Sprintf("etcd%d", i)
	socket := filepath.Join(l.dir, "etcd", name+".control")
	dialer := net.Dialer{}
	return &member{
		name:   name,
		config: filepath.Join(l.dir, "etcd", name+".json"),
		control: &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", socket)
			},
		}},
	}
}

func (l *Lab) etcdURL(i int) string {
	scheme := "http"
	if l.state.TLS {
		scheme = "https"
	}
	return scheme + "://" + netip.AddrPortFrom(memberAddr(false, i).Addr(), 2379).String()
}

// etcdSocket is the URL by which a process outside the fabric reaches member i.
// The last element of the path is the name that its certificate is checked for, or, by 3.4, all of it.
func (l *Lab) etcdSocket(i int) string {
	scheme := "unix"
	if l.state.TLS {
		scheme = "unixs"
	}
	return scheme + "://" + l.socketFile(i)
}

func (l *Lab) socketFile(i int) string {
	return filepath.Join(l.dir, "etcd", fmt.Sprintf("etcd%d", i))
}

// EtcdEndpoints are etcd's client URLs as the hosts see them.
func (l *Lab) EtcdEndpoints() []string {
	var urls []string
	for i := 1; i <= l.state.EtcdMembers; i++ {
		urls = append(urls, l.etcdURL(i))
	}
	return urls
}

// EtcdSockets are etcd's client URLs for processes outside the lab's namespaces.
func (l *Lab) EtcdSockets() []string {
	var urls []string
	for i := 1; i <= l.state.EtcdMembers; i++ {
		urls = append(urls, l.etcdSocket(i))
	}
	return urls
}

// EtcdctlEnv is the environment with which etcdctl works from anywhere on the machine.
func (l *Lab) EtcdctlEnv() []string {
	env := []string{"ETCDCTL_API=3", "ETCDCTL_ENDPOINTS=" + strings.Join(l.EtcdSockets(), ",")}
	if l.state.TLS {
		env = append(env, "ETCDCTL_CACERT="+l.PKI("ca.crt"), "ETCDCTL_CERT="+l.PKI("client.crt"), "ETCDCTL_KEY="+l.PKI("client.key"))
	}
	if l.state.Auth {
		env = append(env, "ETCDCTL_USER="+EtcdUser, fmt.Sprintf("ETCDCTL_PASSWORD=\"$(cat %s)\"", l.EtcdPasswordFile()))
	}
	return env
}

// PKI is where certificates are, with Config.TLS: ca.crt, client.crt,
// client.key, other-ca.crt (which nobody's certificate is signed by).
func (l *Lab) PKI(file string) string { return filepath.Join(l.dir, "pki", file) }

// EtcdPasswordFile holds the password of EtcdUser, with Config.Auth.
func (l *Lab) EtcdPasswordFile() string { return filepath.Join(l.dir, "etcd", "password") }

// startMembers configures and starts all members and waits for a leader.
func (l *Lab) startMembers(ctx context.Context) error {
	var users []MemberUser
	if l.cfg.Auth {
		users = []MemberUser{
			{Name: EtcdRootUser, Password: rand.Text()},
			{Name: EtcdUser, Password: rand.Text(), Prefix: "/calico/"},
		}
		if err := os.WriteFile(l.EtcdPasswordFile(), []byte(users[1].Password+"\n"), 0o600); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(l.dir, "etcd", "root-password"), []byte(users[0].Password+"\n"), 0o600); err != nil {
			return err
		}
	}
	if l.cfg.TLS {
		if err := l.makeCertificates(); err != nil {
			return fmt.Errorf("make certificates: %w", err)
		}
	}
	var cluster []string
	peer := func(i int) string {
		return "http://" + netip.AddrPortFrom(memberAddr(false, i).Addr(), 2380).String()
	}
	for i := 1; i <= l.cfg.EtcdMembers; i++ {
		cluster = append(cluster, fmt.Sprintf("etcd%d=%s", i, peer(i)))
	}
	for i := 1; i <= l.cfg.EtcdMembers; i++ {
		m := l.newMember(i)
		l.members = append(l.members, m)
		cfg := MemberConfig{
			Name: m.name, DataDir: l.state.DataDir, PeerURL: peer(i), Cluster: strings.Join(cluster, ","),
			ClientURLs: []string{l.etcdURL(i), l.etcdSocket(i)},
			Control:    filepath.Join(l.dir, "etcd", m.name+".control"),
			NoFsync:    l.cfg.NoFsync, Quota: l.cfg.EtcdQuota,
		}
		if i == 1 {
			cfg.Users = users
		}
		if l.cfg.TLS {
			cfg.CAFile, cfg.CertFile, cfg.KeyFile = l.PKI("ca.crt"), l.PKI("etcd.crt"), l.PKI("etcd.key")
		}
		if err := writeJSON(m.config, cfg); err != nil {
			return err
		}
		if err := os.Chmod(m.config, 0o600); err != nil { // it may hold passwords
			return err
		}
	}
	for i := range l.members {
		if err := l.launchEtcd(i + 1); err != nil {
			return err
		}
	}
	return l.WaitEtcd(ctx)
}

func (l *Lab) launchEtcd(i int) error {
	m, err := l.member(i)
	if err != nil {
		return err
	}
	_, err = l.spawn(spec{
		role: m.name, ns: l.fabric,
		path: filepath.Join(l.state.BinDir, "calico-lab"), args: []string{"etcd", m.config},
		env: os.Environ(), dir: l.state.DataDir,
	})
	return err
}

func (l *Lab) member(i int) (*member, error) {
	if i < 1 || i > len(l.members) {
		return nil, fmt.Errorf("etcd member %d: the lab has 1 to %d", i, len(l.members))
	}
	return l.members[i-1], nil
}

// WaitEtcd waits until every member that runs knows the leader, and with
// Config.Auth until authentication is on.
func (l *Lab) WaitEtcd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for i := range l.members {
		p, err := l.EtcdProcess(i + 1)
		if err != nil {
			return err
		}
		if p == nil {
			continue
		}
		var dead error
		err = until(ctx, fmt.Sprintf("etcd member %d", i+1), func() (bool, error) {
			if !p.Alive() {
				dead = fmt.Errorf("%s ended; its log, %s, says: %s", p.Role, p.Log, Tail(p.Log, 3))
				return true, nil
			}
			s, err := l.EtcdStatus(ctx, i+1)
			return err == nil && s.Leader != 0 && s.Auth == l.state.Auth, err
		})
		if err = errors.Join(err, dead); err != nil {
			return err
		}
	}
	return nil
}

// EtcdProcess returns the process of member i, from 1; nil where it doesn't run.
func (l *Lab) EtcdProcess(i int) (*Process, error) {
	m, err := l.member(i)
	if err != nil {
		return nil, err
	}
	p, err := l.process(m.name)
	if errors.Is(err, os.ErrProcessDone) {
		return nil, nil
	}
	return p, err
}

// KillEtcd kills member i, from 1, at once, as a power cut would.
func (l *Lab) KillEtcd(i int) error { return l.withEtcd(i, (*Process).Kill) }

// StartEtcd starts member i, from 1, again, with the data that it had.
func (l *Lab) StartEtcd(ctx context.Context, i int) error {
	if err := l.launchEtcd(i); err != nil {
		return err
	}
	return l.WaitEtcd(ctx)
}

// PauseEtcd stops member i in its tracks, which it has done when this returns;
// connections to it stay and get no answer until ResumeEtcd.
func (l *Lab) PauseEtcd(i int) error { return l.withEtcd(i, (*Process).Pause) }

// ResumeEtcd lets a paused member go on.
func (l *Lab) ResumeEtcd(i int) error { return l.withEtcd(i, (*Process).Resume) }

func (l *Lab) withEtcd(i int, fn func(*Process) error) error {
	p, err := l.EtcdProcess(i)
	if err != nil {
		return err
	}
	if p == nil {
		return fmt.Errorf("etcd member %d does not run", i)
	}
	return fn(p)
}
