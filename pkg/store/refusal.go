// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
)

// refusalWait bounds how long a connection that broke is asked for the reason,
// which was sent before the end of the connection, or never.
const refusalWait = 100 * time.Millisecond

// handshaker makes connections that say why they were refused, by the files as they are
// then.
type handshaker struct {
	credentials.TransportCredentials
	files   *tlsFiles
	session *session // nil: none is kept
}

func newHandshaker(files *tlsFiles, session *session) handshaker {
	return handshaker{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), files, session}
}

func (h handshaker) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	cfg, err := h.files.config()
	if err != nil {
		return nil, nil, err
	}
	if h.session != nil {
		cfg.ClientSessionCache = h.session
	}
	conn, info, err := credentials.NewTLS(cfg).ClientHandshake(ctx, authority, raw)
	if h.session != nil {
		if err != nil {
			return nil, nil, h.session.failed(err)
		}
		if made, ok := info.(credentials.TLSInfo); ok {
			h.session.made(made.State)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return refusable{conn}, info, nil
}

func (h handshaker) Clone() credentials.TransportCredentials {
	return handshaker{h.TransportCredentials.Clone(), h.files, h.session}
}

// refusable is a TLS connection. In TLS 1.3 a client is done with the handshake
// before the server has looked at its certificate (RFC 8446, figure 1); what it
// writes then meets a closed connection, and the server's alert lies unread.
type refusable struct{ net.Conn }

func (c refusable) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		return n, err
	}
	if e := c.SetReadDeadline(time.Now().Add(refusalWait)); e != nil {
		return n, err
	}
	// crypto/tls keeps an alert: it is found even if another goroutine has read it.
	if _, e := c.Read(make([]byte, 1)); e != nil && isCertificateText(e.Error()) {
		return n, e
	}
	return n, err
}
