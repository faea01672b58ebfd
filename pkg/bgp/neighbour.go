// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/osrg/gobgp/v4/api"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// maxPassword is TCP_MD5SIG_MAXKEYLEN of linux/tcp.h.
const maxPassword = 80

// connectRetry is the pause between two connection attempts, in seconds.
const connectRetry = 5

// session is the setup of a neighbour. Two equal ones need no change.
type session struct {
	address, local netip.Addr
	as             uint32
	password       string
	multihop       int
	clusterID      netip.Addr // cluster id of routes reflected to it; invalid = none are
	port           uint16
	localAS        uint32 // 0 = the speaker's
	allowOwnAS     int
	ttlSecurity    int // hops, 0 = off
	// terms are sent when a session begins: a change waits for the session to end.
	terms terms
}

// terms are the settings whose change doesn't reset a session in progress.
type terms struct {
	hold, keepalive, restart time.Duration
}

// newSession returns the session that is wanted with a neighbour.
func newSession(speaker plan.Speaker, n plan.Neighbour) (session, error) {
	s := session{
		address: n.Address, local: n.Local, as: uint32(n.AS), multihop: n.Multihop, port: cmp.Or(uint16(n.Options.Port), 179),
		localAS: uint32(n.Options.LocalAS), allowOwnAS: n.Options.AllowedLocalAS, ttlSecurity: n.Options.TTLSecurity,
		terms: termsOf(speaker, n.Options),
	}
	switch {
	case n.Client:
		s.clusterID = speaker.ClusterID
	case n.Reflector:
		// The library sends originators to clients only, and two reflectors that aren't each other's clients never withdraw
		// what they have sent each other. So this neighbour is set up as a client, and the policies decide what it gets. A
		// route whose cluster list has the session's cluster id is never withdrawn from it, and the list may have our cluster
		// id: so the session has our router id instead.
		s.clusterID = speaker.RouterID
	}
	if n.Host != "" && n.Options.Port == 0 && speaker.ListenPort != 0 {
		s.port = speaker.ListenPort // our own hosts listen at our port
	}
	switch {
	case !plain(n.Address):
		return s, fmt.Errorf("its address %s: want an IPv4 or IPv6 address without zone", n.Address)
	case n.Local.IsValid() && (!plain(n.Local) || n.Local.Is4() != n.Address.Is4()):
		return s, fmt.Errorf("the address to speak from, %s, is not of its family", n.Local)
	case n.Local == n.Address:
		return s, errors.New("it is this host: remove the peer")
	case n.AS == 0:
		return s, errors.New("it has no AS number")
	case n.Multihop < 0 || n.Multihop > 255:
		return s, fmt.Errorf("%d hops: want 0 to 255", n.Multihop)
	case n.MaxPrefixes < 0 || n.MaxPrefixes > 1<<31:
		return s, fmt.Errorf("at most %d prefixes: want 0 (any number) to %d", n.MaxPrefixes, 1<<31)
	case (n.Client || n.Reflector) && !speaker.ClusterID.Is4():
		return s, errors.New("it is a client or a reflector, but this host is no route reflector: set its cluster id")
	}
	var err error
	if n.PasswordFile != "" {
		s.password, err = readPassword(n.PasswordFile)
	}
	return s, err
}

// termsOf returns the speaker's terms, overridden by the peer's own.
func termsOf(speaker plan.Speaker, o model.PeerOptions) terms {
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	t := terms{
		cmp.Or(second(o.HoldTime), speaker.HoldTime), cmp.Or(second(o.KeepaliveTime), speaker.KeepaliveTime),
		cmp.Or(second(o.MaxRestartTime), speaker.RestartTime),
	}
	if o.HoldTime != 0 && o.KeepaliveTime == 0 || t.keepalive > t.hold/3 {
		t.keepalive = t.hold / 3
	}
	return t
}

// plain reports whether sessions can be held with an address.
func plain(a netip.Addr) bool { return a.IsValid() && a.Zone() == "" && !a.Is4In6() }

// readPassword reads a TCP MD5 password, the only line of a file. Errors never quote it.
func readPassword(path string) (string, error) {
	// Reading anything but a regular file might never end, nor even opening it.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("password_file: %w: create it with the password that the neighbour has", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("password_file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("password_file %s: want a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, 4*maxPassword))
	if err != nil {
		return "", fmt.Errorf("password_file: %w", err)
	}
	data = bytes.TrimRight(data, "\r\n")
	switch {
	case len(data) == 0:
		return "", fmt.Errorf("password_file %s is empty: write the password into it", path)
	case len(data) > maxPassword:
		return "", fmt.Errorf("password_file %s is too long: a password has at most %d bytes", path, maxPassword)
	case bytes.ContainsAny(data, "\r\n\x00"):
		return "", fmt.Errorf("password_file %s: want one line", path)
	}
	return string(data), nil
}

// peer returns the session in the library's form. With restarting, the neighbour is told that we have just restarted and have
// kept our routes (RFC 4724, section 4.1).
func (s session) peer(restarting bool) *api.Peer {
	family := &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}
	local := "0.0.0.0"
	if s.address.Is6() {
		family.Afi, local = api.Family_AFI_IP6, "::"
	}
	if s.local.IsValid() {
		local = s.local.String()
	}
	graceful := s.terms.restart >= time.Second
	p := &api.Peer{
		Conf: &api.PeerConf{
			NeighborAddress: s.address.String(),
			PeerAsn:         s.as,
			AuthPassword:    s.password,
			LocalAsn:        s.localAS,
			AllowOwnAsn:     uint32(s.allowOwnAS),
		},
		Transport: &api.Transport{LocalAddress: local, RemotePort: uint32(s.port)},
		Timers: &api.Timers{Config: &api.TimersConfig{
			ConnectRetry:           connectRetry,
			HoldTime:               uint64(s.terms.hold / time.Second),
			KeepaliveInterval:      uint64(s.terms.keepalive / time.Second),
			IdleHoldTimeAfterReset: connectRetry,
		}},
		AfiSafis: []*api.AfiSafi{{
			Config:            &api.AfiSafiConfig{Family: family, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: graceful}},
		}},
	}
	if s.multihop > 0 {
		p.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: uint32(s.multihop)}
	}
	if s.ttlSecurity > 0 {
		p.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: uint32(256 - s.ttlSecurity)}
	}
	if s.clusterID.IsValid() {
		p.RouteReflector = &api.RouteReflector{RouteReflectorClient: true, RouteReflectorClusterId: s.clusterID.String()}
	}
	if graceful {
		p.GracefulRestart = &api.GracefulRestart{
			Enabled: true, RestartTime: uint32(min(s.terms.restart/time.Second, 4095)),
			DeferralTime:    s.deferral(),
			LocalRestarting: restarting,
		}
	}
	return p
}

// deferral returns how many seconds a restarted host waits, once a session is up, for its neighbours' routes before it says
// that it has sent all. A host knows its own routes at once; a reflector must first learn what it passes on.
func (s session) deferral() uint32 {
	if s.clusterID.IsValid() {
		return uint32(max(leastDeferral, s.terms.restart/time.Second/4))
	}
	return leastDeferral
}

// leastDeferral is the shortest time that the library accepts, in seconds.
const leastDeferral = 1
