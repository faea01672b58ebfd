// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// sessionLife is how long calls resume a session before one of them proves again, by a
// full handshake, who both sides are.
const sessionLife = time.Hour

// resumeText begins the error of a handshake that a kept session may have spoiled.
const resumeText = "resume the TLS session of an earlier call: "

// session is the TLS session with one endpoint that processes leave to each other. It is the
// tls.ClientSessionCache of the first handshake; what goes wrong with the file costs a full one.
//
// crypto/tls (Go 1.26) looks at what is resumed as at what is new, the server's name
// (loadSession) and, on both sides, the time and the root of the chains that were verified
// (anyValidVerifiedChain); a server takes no ticket that a key of another process made.
type session struct {
	file    sessionFile
	belongs [sha256.Size]byte // to what its file has this for
	log     *slog.Logger
	kept    func() *tls.ClientSessionState // the file's, nil where that is of no use

	asked   atomic.Bool // for what is kept: only once, so that what goes wrong is tried again without
	offered atomic.Bool
	full    atomic.Bool // the handshake was, and its ticket is worth keeping
}

// session is for the endpoint; nil where none is kept.
func (f *tlsFiles) session(dir, endpoint string, log *slog.Logger) *session {
	if f == nil || dir == "" {
		return nil
	}
	name := digest([]byte(endpoint), []byte(f.caFile), []byte(f.certFile), []byte(f.keyFile))
	s := &session{
		file: sessionFile{dir, hex.EncodeToString(name[:16]), os.Geteuid()},
		// Another version of Go may write sessions in another form.
		belongs: digest([]byte(runtime.Version()), []byte(endpoint), f.sum[:]),
		log:     log,
	}
	s.kept = sync.OnceValue(func() *tls.ClientSessionState {
		data, err := s.file.read()
		if err != nil {
			s.notKept(err)
			return nil
		}
		kept, err := parseSession(data, s.belongs, time.Now())
		if err != nil {
			s.notKept(err)
			return nil
		}
		return kept
	})
	return s
}

// digest is of all parts and where each ends.
func digest(parts ...[]byte) [sha256.Size]byte {
	var sums []byte
	for _, p := range parts {
		sum := sha256.Sum256(p)
		sums = append(sums, sum[:]...)
	}
	return sha256.Sum256(sums)
}

// isKept reports whether there is a session to resume, of the files as they are.
func (s *session) isKept() bool { return s != nil && s.kept() != nil }

// Get is called by crypto/tls before a handshake.
func (s *session) Get(string) (*tls.ClientSessionState, bool) {
	if s.asked.Swap(true) {
		return nil, false
	}
	kept := s.kept()
	s.offered.Store(kept != nil)
	return kept, kept != nil
}

// Put is called by crypto/tls when a ticket comes, in TLS 1.3 after the handshake. The ticket of
// a resumed session is not kept: each would live longer than the one before.
func (s *session) Put(_ string, state *tls.ClientSessionState) {
	if state == nil || !s.full.Swap(false) {
		return
	}
	data, err := formatSession(state, s.belongs, time.Now())
	if err == nil {
		err = s.file.write(data, time.Now().Add(-sessionLife))
	}
	if err != nil {
		s.log.Debug("the TLS session is not left for later calls", "file", s.file.path(), "reason", err)
	}
}

func (s *session) notKept(err error) {
	if !errors.Is(err, os.ErrNotExist) {
		s.log.Debug("no TLS session of an earlier call", "file", s.file.path(), "reason", err)
	}
}

// made notes how a connection came about.
func (s *session) made(state tls.ConnectionState) {
	s.offered.Store(false)
	s.full.Store(!state.DidResume && state.Version == tls.VersionTLS13)
	s.log.Debug("TLS to etcd", "resumed", state.DidResume)
}

// failed is the error of a handshake. If it had a session to resume, that may be the cause: it is
// forgotten, and the error made one after which the request is tried again. One that was given up
// here, as where etcd hangs, says nothing about the session.
func (s *session) failed(err error) error {
	givenUp := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, net.ErrClosed)
	if !s.offered.Swap(false) || givenUp {
		return err
	}
	s.file.remove()
	return fmt.Errorf("%s%w", resumeText, err)
}
