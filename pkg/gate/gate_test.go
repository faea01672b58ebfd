// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// waiter is an agent of a test.
type waiter struct {
	wait  func(ctx context.Context, r Request) error
	ready error
	pod   func(ctx context.Context, r PodRequest) (Pod, error)
}

func (w waiter) Wait(ctx context.Context, r Request) error { return w.wait(ctx, r) }
func (w waiter) Ready(host string) error {
	if host == "other" {
		return &RejectedError{Reason: "this is the agent of host a"}
	}
	return w.ready
}

func (w waiter) Pod(ctx context.Context, r PodRequest) (Pod, error) { return w.pod(ctx, r) }

// serve runs a server until the test ends, and returns its socket and its stop,
// which returns Serve's error.
func serve(t *testing.T, w Waiter) (socket string, stop func() error) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "run", "agent.sock")
	stop = serveAt(t, socket, w)
	return socket, stop
}

func serveAt(t *testing.T, socket string, w Waiter) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, socket, w) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	eventually.True(t, "the agent to listen", func() bool { return !errors.Is(Ping(ctx, socket, ""), ErrNoAgent) || len(done) > 0 })
	return stop
}

// noLeaks waits until no goroutine is left.
func noLeaks(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		err := goleak.Find()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func request() Request {
	return Request{
		Endpoint: model.WorkloadEndpointKey{Host: "node-1", Orchestrator: "k8s", Workload: "default.a&b=c/d %", Endpoint: "eth0"},
		Revision: 42,
	}
}

func TestWait(t *testing.T) {
	tests := []struct {
		name  string
		err   error
		want  error
		retry bool
	}{
		{name: "programmed"},
		{name: "refused", err: &RejectedError{Reason: "interface cali1 is not there"}, want: &RejectedError{Reason: "interface cali1 is not there"}},
		{name: "not now", err: &RejectedError{Reason: "etcd is away", Retry: true}, want: &RejectedError{Reason: "etcd is away", Retry: true}},
		{name: "any error", err: errors.New("boom"), want: &RejectedError{Reason: "boom", Retry: true}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got Request
			socket, _ := serve(t, waiter{wait: func(_ context.Context, r Request) error {
				got = r
				return test.err
			}})
			err := Wait(t.Context(), socket, request())
			if diff := cmp.Diff(test.want, err); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(request(), got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPing(t *testing.T) {
	socket, _ := serve(t, waiter{})
	if err := Ping(t.Context(), socket, ""); err != nil {
		t.Error(err)
	}
	for _, namesake := range []*RejectedError{
		{Reason: "another host that is called a lives", Retry: true, Name: NameInDoubt},
		{Reason: "it asks around", Retry: true, Name: NameInDoubt, Undecided: true},
	} {
		socket, _ = serve(t, waiter{ready: namesake})
		if diff := cmp.Diff(error(namesake), Ping(t.Context(), socket, "a")); diff != "" {
			t.Errorf("Ping of an agent whose name may be another's (-want +got):\n%s", diff)
		}
	}
	socket, _ = serve(t, waiter{ready: errors.New("not in sync with etcd")})
	var rejected *RejectedError
	if err := Ping(t.Context(), socket, ""); !errors.As(err, &rejected) || !rejected.Retry || rejected.Reason != "not in sync with etcd" {
		t.Errorf("Ping: %v", err)
	}
	if err := Ping(t.Context(), socket, "other"); !errors.As(err, &rejected) || rejected.Retry || rejected.Reason != "this is the agent of host a" {
		t.Errorf("Ping for another host: %v", err)
	}
}

func TestNoAgent(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{filepath.Join(dir, "none.sock"), filepath.Join(dir, "no", "dir"), stale} {
		if err := Wait(t.Context(), socket, request()); !errors.Is(err, ErrNoAgent) {
			t.Errorf("Wait(%s): %v", socket, err)
		}
		if err := Ping(t.Context(), socket, ""); !errors.Is(err, ErrNoAgent) {
			t.Errorf("Ping(%s): %v", socket, err)
		}
	}
	serveAt(t, stale, waiter{}) // takes the place of what a dead agent left
	if err := Ping(t.Context(), stale, ""); err != nil {
		t.Error(err)
	}
}

func TestWaitEndsWithTheContext(t *testing.T) {
	came, left := make(chan struct{}), make(chan error, 1)
	socket, _ := serve(t, waiter{wait: func(ctx context.Context, _ Request) error {
		close(came)
		<-ctx.Done()
		left <- ctx.Err()
		return ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-came
		cancel()
	}()
	if err := Wait(ctx, socket, request()); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
	if err := <-left; !errors.Is(err, context.Canceled) { // the server noticed
		t.Errorf("the agent's wait: %v", err)
	}
}

// TestReasonBeforeTheDeadline: the client learns what it has waited for.
func TestReasonBeforeTheDeadline(t *testing.T) {
	socket, _ := serve(t, waiter{wait: func(ctx context.Context, _ Request) error {
		<-ctx.Done()
		return &RejectedError{Reason: "its route is missing", Retry: true}
	}})
	// On a busy machine a tenth of the time may be too short for the answer.
	for within := 2 * time.Second; ; within *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		err := Wait(ctx, socket, request())
		cancel()
		var rejected *RejectedError
		if errors.As(err, &rejected) && rejected.Reason == "its route is missing" {
			break
		}
		if within > 20*time.Second {
			t.Fatalf("Wait: %v", err)
		}
	}
}

// TestSocketIsMadeAgain: removing the socket does not stop the agent.
func TestSocketIsMadeAgain(t *testing.T) {
	long.Test(t)
	socket, stop := serve(t, waiter{ready: errors.New("here")})
	for range 2 {
		if err := os.Rename(filepath.Dir(socket), filepath.Join(t.TempDir(), "away")); err != nil { // at once: it is made again
			t.Fatal(err)
		}
		eventually.True(t, "the socket", func() bool { return !errors.Is(Ping(t.Context(), socket, ""), ErrNoAgent) })
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket was left: %v", err)
	}
	noLeaks(t)
}

func TestStopWhileWaiting(t *testing.T) {
	// On a busy machine the answer may not be written within the second that the server gives it.
	for try := 1; ; try++ {
		err := stopWhileWaiting(t)
		var rejected *RejectedError
		if errors.As(err, &rejected) && rejected.Retry {
			return
		}
		if err == nil || rejected != nil || try == 5 {
			t.Fatalf("Wait: %v", err)
		}
	}
}

// stopWhileWaiting stops a server at which one waits, and returns what that one is told.
func stopWhileWaiting(t *testing.T) error {
	waits := make(chan bool)
	socket, stop := serve(t, waiter{wait: func(ctx context.Context, _ Request) error {
		waits <- true
		<-ctx.Done()
		return ctx.Err()
	}})
	result := make(chan error)
	go func() { result <- Wait(context.Background(), socket, request()) }()
	<-waits
	if err := stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	told := <-result
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket was left: %v", err)
	}
	noLeaks(t)
	return told
}

func TestSocket(t *testing.T) {
	socket, stopFirst := serve(t, waiter{ready: errors.New("first")})
	info, err := os.Stat(socket)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	// Another takes over; the first's end doesn't take its socket away.
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, socket, waiter{}) }()
	eventually.Nil(t, "the second to listen", func() error { return Ping(ctx, socket, "") })
	if err := stopFirst(); err != nil {
		t.Error(err)
	}
	if err := Ping(ctx, socket, ""); err != nil {
		t.Errorf("after the first ended: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := Serve(t.Context(), filepath.Join(t.TempDir(), strings.Repeat("x", 120)), waiter{}); err == nil || !strings.Contains(err.Error(), "107 bytes") {
		t.Errorf("a path too long: %v", err)
	}
}

// Whatever a client sends, it gets an answer or is disconnected, and the next one is served.
func TestGarbageToServer(t *testing.T) {
	socket, _ := serve(t, waiter{wait: func(context.Context, Request) error { return nil }})
	for _, garbage := range []string{
		"\x00\x01\x02\r\n\r\n",
		"GET",
		"GET / HTTP/1.1\r\n\r\n",
		"GET /v1/programmed HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/programmed?host=%zz HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/programmed?host=a&orchestrator=b&workload=c&endpoint=d&revision=-1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/programmed?host=a&orchestrator=b&workload=c&endpoint=d&revision=x HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/pod?name=x HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/pod?namespace=%zz HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /v1/ready HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
		"GET /v1/ready HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
	} {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, garbage); err == nil {
			_ = conn.(*net.UnixConn).CloseWrite()
			answer, _ := io.ReadAll(conn)
			if strings.HasPrefix(string(answer), "HTTP/1.1 200") {
				t.Errorf("%.80q was answered with %q", garbage, answer)
			}
		}
		_ = conn.Close()
	}
	if err := Wait(t.Context(), socket, request()); err != nil {
		t.Error(err)
	}
}

// Whatever answers the client, Wait is only nil for the protocol's yes.
func TestGarbageToClient(t *testing.T) {
	for _, garbage := range []string{
		"", "\x00", "HTTP/1.1", "SSH-2.0-x\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
		"HTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 301 Moved\r\nLocation: /v1/ready\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 409 Conflict\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 1<<20),
	} {
		socket := filepath.Join(t.TempDir(), "s")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				b := make([]byte, 4096)
				_, _ = conn.Read(b)
				_, _ = io.WriteString(conn, garbage)
				_ = conn.Close()
			}
		}()
		if err := Wait(t.Context(), socket, request()); err == nil || errors.Is(err, ErrNoAgent) {
			t.Errorf("%.60q: %v", garbage, err)
		}
		if p, err := AskPod(t.Context(), socket, PodRequest{Namespace: "a", Name: "b"}); err == nil || errors.Is(err, ErrNoAgent) || errors.Is(err, ErrNoPod) {
			t.Errorf("%.60q: %+v, %v", garbage, p, err)
		}
		_ = listener.Close()
		<-done
	}
}

func FuzzQuery(f *testing.F) {
	f.Add(request().query())
	f.Add("host=a&host=b")
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := parseQuery(raw)
		if err != nil {
			return
		}
		again, err := parseQuery(r.query())
		if err != nil || again != r {
			t.Errorf("%q: %+v became %+v, %v", raw, r, again, err)
		}
	})
}

func BenchmarkWait(b *testing.B) {
	socket := filepath.Join(b.TempDir(), "agent.sock")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, socket, waiter{wait: func(context.Context, Request) error { return nil }})
	}()
	eventually.Nil(b, "the agent to listen", func() error { return Ping(ctx, socket, "") })
	for b.Loop() {
		if err := Wait(ctx, socket, request()); err != nil {
			b.Fatal(err)
		}
	}
	cancel()
	<-done
}
