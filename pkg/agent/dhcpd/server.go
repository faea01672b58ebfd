// SPDX-License-Identifier: Apache-2.0

package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"reflect"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/calico-go/calico/pkg/dhcp"
	"github.com/calico-go/calico/pkg/retry"
)

const (
	// perSecond is how many frames of one tap are handled, and burst how many at once: a client asks a few times, then again after seconds.
	perSecond = 10
	burst     = 20
	// reopenPause and maxReopenPause are the first and the longest pause before reopening a tap that can't be listened to: a tap that was
	// deleted and created again is another one.
	reopenPause    = 100 * time.Millisecond
	maxReopenPause = 5 * time.Second
	// declinePause is how long a machine that has declined an address is offered none.
	declinePause = time.Second
	// maxFrame is the largest client message with its headers: the link's MTU.
	maxFrame = 1 << 11
)

// server serves one tap.
type server struct {
	cfg   Config
	iface string
	end   context.CancelFunc
	ended chan struct{}

	mu     sync.Mutex
	port   dhcp.Port
	socket Socket // nil = it isn't open

	declined time.Time // when the machine last declined an address; only run uses it
}

// start serves a tap until stop.
func start(ctx context.Context, cfg Config, iface string, port dhcp.Port) *server {
	ctx, cancel := context.WithCancel(ctx)
	s := &server{cfg: cfg, iface: iface, end: cancel, ended: make(chan struct{}), port: port}
	go func() {
		defer close(s.ended)
		defer s.note(nil)
		s.run(ctx)
	}()
	return s
}

func (s *server) stop() {
	s.end()
	<-s.ended
}

// update changes what the tap is served, and announces the routers to the machine again if that differs from before.
func (s *server) update(port dhcp.Port) {
	s.mu.Lock()
	same := reflect.DeepEqual(s.port, port)
	s.port = port
	s.mu.Unlock()
	if !same {
		s.announce()
		s.advertise()
	}
}

// now returns the port as it is served, and its socket.
func (s *server) now() (dhcp.Port, Socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	port := s.port
	if port.MTU == 0 && s.socket != nil {
		port.MTU = s.socket.MTU()
	}
	return port, s.socket
}

func (s *server) setSocket(socket Socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.socket = socket
}

// run listens, reopening the socket when that fails.
func (s *server) run(ctx context.Context) {
	var said retry.News
	for backoff := (retry.Backoff{First: reopenPause, Longest: maxReopenPause, Exact: true}); ; {
		opened, err := s.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if opened {
			backoff.Reset()
			said.Is(nil)
		}
		level := slog.LevelWarn
		if errors.Is(err, os.ErrNotExist) {
			level = slog.LevelDebug // the machine has ended, or is about to start
		}
		if said.Is(err) {
			s.cfg.Logger.Log(ctx, level, "a tap can't be served by DHCP, trying again", "interface", s.iface, "reason", err)
		}
		if retry.Wait(ctx, backoff.Next()) != nil {
			return
		}
	}
}

// listen answers until the socket fails or the context ends.
func (s *server) listen(ctx context.Context) (opened bool, err error) {
	socket, err := s.cfg.Open(s.iface)
	if err != nil {
		return false, err
	}
	s.setSocket(socket)
	closeSocket := sync.OnceFunc(func() { _ = socket.Close() }) // nothing was written that could be lost
	defer closeSocket()
	defer s.setSocket(nil)
	defer context.AfterFunc(ctx, closeSocket)()
	limit := rate.NewLimiter(perSecond, burst)
	buf := make([]byte, maxFrame)
	s.announce()
	for next := time.Now(); ; {
		if now := time.Now(); !now.Before(next) {
			s.advertise()
			if now.Sub(s.declined) > dhcp.AdvertiseEvery/2 {
				s.note(nil)
			}
			next = now.Add(dhcp.AdvertiseEvery/2 + rand.N(dhcp.AdvertiseEvery/2))
		}
		// Frames that come meanwhile wait in the socket, or are dropped there.
		if err := limit.Wait(ctx); err != nil {
			return true, err
		}
		in, err := socket.Receive(buf, next)
		if err != nil {
			return true, err
		}
		if in != nil {
			s.answer(in)
		}
	}
}

// answer answers a frame.
func (s *server) answer(in []byte) {
	port, socket := s.now()
	var out []byte
	if a, ok := port.Declined(in); ok {
		s.declined = time.Now()
		s.note(fmt.Errorf("the machine declines %s, as somebody else on a network of its own seems to have it: it is offered the address again, as no other is its", a))
		out = port.Answer(in)
	} else if time.Since(s.declined) >= declinePause {
		out = port.Answer(in)
	}
	if out == nil {
		s.cfg.Metrics.ignored.Inc()
		return
	}
	s.cfg.Metrics.answered.Inc()
	s.send(socket, out)
}

// note lists a declined address; nil = there is none.
func (s *server) note(err error) {
	if before, after := s.cfg.Problems.Note(problemKind, "tap "+s.iface, err); after != before && after != "" {
		s.cfg.Logger.Warn("a machine declines its address", "interface", s.iface, "reason", after)
	}
}

// announce tells the machine where its routers are.
func (s *server) announce() {
	port, socket := s.now()
	for _, out := range port.Announcements() {
		if socket != nil {
			s.send(socket, out)
		}
	}
}

// advertise tells the machine of its router.
func (s *server) advertise() {
	port, socket := s.now()
	if out := port.Advertisement(); out != nil && socket != nil {
		s.send(socket, out)
	}
}

// send sends a frame. If it is lost, the client asks again.
func (s *server) send(socket Socket, frame []byte) {
	if err := socket.Send(frame); err != nil {
		s.cfg.Logger.Debug("an answer to a machine was not sent", "interface", s.iface, "reason", err)
	}
}
