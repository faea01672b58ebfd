// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	attempt = 2 * time.Second        // of one connection or packet
	pause   = 200 * time.Millisecond // between two
)

// serve answers on the port with a name, until ctx ends: each connection is told the name and closed, each packet comes back with it.
func serve(ctx context.Context, port int, name string) error {
	config, at := net.ListenConfig{Control: dontFragment}, fmt.Sprintf(":%d", port)
	packets, err := config.ListenPacket(ctx, "udp", at)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		return errors.Join(err, packets.Close())
	}
	defer context.AfterFunc(ctx, func() { _, _ = packets.Close(), listener.Close() })() // ends both loops
	go func() {
		for buf := make([]byte, 1<<16); ; {
			n, from, err := packets.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				copy(buf[:n], name)
				_, _ = packets.WriteTo(buf[:n], from) // the client asks again
			}
		}
	}()
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return errors.Join(err, packets.Close(), listener.Close())
		}
		_ = conn.SetDeadline(time.Now().Add(attempt)) // it was just accepted
		_, _ = io.WriteString(conn, name)             // the client asks again
		_ = conn.Close()
	}
}

// dontFragment has packets lost that are larger than the path's MTU.
func dontFragment(network, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER, syscall.IP_PMTUDISC_DO)
		if failed == nil && strings.HasSuffix(network, "6") {
			failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IPV6, syscall.IPV6_MTU_DISCOVER, syscall.IPV6_PMTUDISC_DO)
		}
	})
	return errors.Join(err, failed)
}

// parseProbes reads the argument of a client.
func parseProbes(text string) (all []probe, err error) {
	err = json.Unmarshal([]byte(text), &all)
	return all, err
}

// runProbes tries all at the same time, and writes each outcome as a line of JSON.
func runProbes(ctx context.Context, all []probe, w io.Writer) error {
	var wg sync.WaitGroup
	outcomes := make([]outcome, len(all))
	for i, p := range all {
		wg.Go(func() { outcomes[i] = outcome{probe: p, Error: p.until(ctx)} })
	}
	wg.Wait()
	for _, o := range outcomes {
		if err := json.NewEncoder(w).Encode(o); err != nil {
			return err
		}
	}
	return nil
}

// until tries the probe until it ends as it should, or ctx does, and says how the last attempt failed.
func (p probe) until(ctx context.Context) (failure string) {
	for {
		one, cancel := context.WithTimeout(ctx, attempt)
		err := p.try(one)
		cancel()
		switch {
		case p.Closed && err == nil:
			failure = "reached, against the policy"
		case p.Closed && ctx.Err() == nil, err == nil:
			return ""
		case !p.Closed && (ctx.Err() == nil || failure == ""):
			failure = err.Error()
		}
		select {
		case <-ctx.Done():
			return cmp.Or(failure, "no time was left")
		case <-time.After(pause):
		}
	}
}

func (p probe) try(ctx context.Context) error {
	switch p.Test {
	case testDNS:
		_, err := net.DefaultResolver.LookupNetIP(ctx, "ip", p.Target)
		return err
	case testMTU:
		return p.packet(ctx)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.Target)
	if err != nil {
		return err
	}
	defer conn.Close()
	if p.Answer == "" {
		return nil
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	got, err := io.ReadAll(io.LimitReader(conn, 256))
	if err == nil && string(got) != p.Answer {
		err = fmt.Errorf("%q answers instead of %s", got, p.Answer)
	}
	return err
}

// packet sends one as large as the pod's MTU, and waits until it is back.
func (p probe) packet(ctx context.Context) error {
	conn, err := (&net.Dialer{Control: dontFragment}).DialContext(ctx, "udp", p.Target)
	if err != nil {
		return err
	}
	defer conn.Close()
	link, err := net.InterfaceByName("eth0") // every pod's
	if err != nil {
		return err
	}
	headers := 20 + 8 // RFC 791, RFC 768
	if p.family() == "IPv6" {
		headers = 40 + 8 // RFC 8200
	}
	deadline, _ := ctx.Deadline()
	buf := make([]byte, link.MTU-headers)
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err = conn.Write(buf); err == nil {
		_, err = io.ReadFull(conn, buf)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("a packet of %d bytes, the pod's MTU, is lost", link.MTU)
	case err == nil && !strings.HasPrefix(string(buf), p.Answer):
		err = fmt.Errorf("another than %s answers", p.Answer)
	}
	return err
}
