// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/calico-go/calico/pkg/server"
)

const (
	// maxCalls is how many clients may wait at the same time: all pods of a host that start. The socket is local to the
	// host.
	maxCalls = 1024
	// stopTimeout is how long pending answers may take when stopping.
	stopTimeout = time.Second
	// lookInterval is how often the server checks that its socket exists.
	lookInterval = 10 * time.Second
)

// Waiter is the agent behind the gate.
type Waiter interface {
	// Wait returns nil once the endpoint at the revision or later has been verified in the kernel. A *RejectedError is
	// passed on as it is; any other error asks the client to retry later. The context ends when the client disconnects,
	// or a little before the client's own context ends; then the error says what the endpoint still lacks.
	Wait(ctx context.Context, r Request) error
	// Ready returns nil if Wait can be served now for endpoints of the host, or of the agent's own host if host is
	// empty.
	Ready(host string) error
	// Pod returns what the Kubernetes API knows about a pod. An error may wrap ErrNoPod; others are passed on like
	// Wait's. The context ends as for Wait.
	Pod(ctx context.Context, r PodRequest) (Pod, error)
}

// Serve answers on the socket until the context ends, which is no error. It creates the socket with mode 0600 and
// renames it into place, over a stale one.
func Serve(ctx context.Context, socket string, w Waiter) error {
	listener, own, err := listen(socket)
	if err != nil {
		return err
	}
	server := server.HTTP(handler(w))
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	p := &place{socket: socket, own: own}
	kept := make(chan struct{})
	keeping, enough := context.WithCancel(ctx)
	go func() {
		defer close(kept)
		p.keep(keeping, server)
	}()
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if server.Shutdown(late) != nil {
			_ = server.Close() // connections still open have had their time
		}
	})
	err = server.Serve(listener)
	enough()
	<-kept
	if stop() {
		_ = server.Close() // Serve failed by itself; report its error
		_ = removeOwn(socket, p.own)
		return fmt.Errorf("serve the gate on %s: %w", socket, err)
	}
	<-stopped
	if err := removeOwn(socket, p.own); err != nil {
		return fmt.Errorf("serve the gate on %s: %w", socket, err)
	}
	return nil
}

// place is the location of the socket.
type place struct {
	socket string
	own    os.FileInfo // the socket that this process has put there
}

// keep recreates the socket if it was removed, as by programs that clean up below /run, until the context ends.
// Otherwise the agent would go on without it, and no pod could start.
func (p *place) keep(ctx context.Context, server *http.Server) {
	beat := time.NewTicker(lookInterval)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
		if _, err := os.Lstat(p.socket); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		listener, own, err := listen(p.socket)
		if err != nil {
			continue // try again next time
		}
		p.own = own
		go func() { _ = server.Serve(listener) }() // it ends with the server
	}
}

// listen creates the socket under another name and renames it, so that the socket at the path always answers and has
// the right mode.
func listen(socket string) (net.Listener, os.FileInfo, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, nil, fmt.Errorf("make the directory of the gate: %w", err)
	}
	made := socket + ".new"
	if err := os.Remove(made); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("remove what a dead agent left: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, nil, fmt.Errorf("listen on %s (a socket's path has at most 107 bytes): %w", made, err)
	}
	listener.SetUnlinkOnClose(false) // the name it knows is not the one in use
	err = os.Chmod(made, 0o600)
	if err == nil {
		err = os.Rename(made, socket)
	}
	var own os.FileInfo
	if err == nil {
		own, err = os.Lstat(socket)
	}
	if err != nil {
		_ = listener.Close()
		_ = os.Remove(made)
		return nil, nil, fmt.Errorf("put the gate's socket in place: %w", err)
	}
	return server.Limit(listener, maxCalls), own, nil
}

// removeOwn removes the socket unless another agent has taken its place.
func removeOwn(socket string, own os.FileInfo) error {
	now, err := os.Lstat(socket)
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(own, now) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(socket)
}

func handler(w Waiter) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathProgrammed, func(out http.ResponseWriter, in *http.Request) {
		r, err := parseQuery(in.URL.RawQuery)
		if err != nil {
			reply(out, http.StatusBadRequest, answer{Reason: err.Error()})
			return
		}
		ctx, cancel := within(out, in)
		defer cancel()
		replyError(out, in, w.Wait(ctx, r))
	})
	mux.HandleFunc("GET "+pathReady, func(out http.ResponseWriter, in *http.Request) {
		replyError(out, in, w.Ready(in.URL.Query().Get("host")))
	})
	mux.HandleFunc("GET "+pathPod, podHandler(w))
	mux.HandleFunc("/", func(out http.ResponseWriter, in *http.Request) {
		reply(out, http.StatusNotFound, answer{Reason: fmt.Sprintf("%s %s is not of the gate's protocol", in.Method, in.URL.Path)})
	})
	return mux
}

// within returns the context of a request, which ends when the client wants its answer. That may be late: the server's
// deadlines are meant for receiving requests and sending answers.
func within(out http.ResponseWriter, in *http.Request) (context.Context, context.CancelFunc) {
	late := http.NewResponseController(out)
	_ = late.SetReadDeadline(time.Time{})  // else the request's context would end with it
	_ = late.SetWriteDeadline(time.Time{}) // an answer fits into the socket's buffer
	if d, ok := parseWithin(in.URL.RawQuery); ok {
		return context.WithTimeout(in.Context(), d)
	}
	return in.Context(), func() {}
}

func replyError(out http.ResponseWriter, in *http.Request, err error) {
	var rejected *RejectedError
	switch {
	case err == nil:
		reply(out, http.StatusOK, answer{})
	case errors.As(err, &rejected) && !rejected.Retry:
		reply(out, http.StatusConflict, answer{Reason: rejected.Reason, Name: rejected.Name, Undecided: rejected.Undecided})
	case rejected != nil:
		reply(out, http.StatusServiceUnavailable, answer{Reason: rejected.Reason, Name: rejected.Name, Undecided: rejected.Undecided})
	case in.Context().Err() != nil:
		reply(out, http.StatusServiceUnavailable, answer{Reason: "the agent is stopping"})
	default:
		reply(out, http.StatusServiceUnavailable, answer{Reason: err.Error()})
	}
}

func reply(out http.ResponseWriter, status int, body any) {
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(status)
	_ = json.NewEncoder(out).Encode(body) // a client that left needs no answer
}
