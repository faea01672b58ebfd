// SPDX-License-Identifier: Apache-2.0

package nsmgrpc

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/calico-go/calico/pkg/nsm"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// podCredentials identify the caller over a unix socket, using the kernel's SO_PEERCRED, see unix(7).
type podCredentials struct {
	credentials.TransportCredentials
}

func newPodCredentials() podCredentials { return podCredentials{insecure.NewCredentials()} }

// pod is the caller: the inode of its network namespace, or the error why that isn't known.
type pod struct {
	credentials.CommonAuthInfo
	namespace uint64
	err       error
}

// AuthType implements credentials.AuthInfo.
func (pod) AuthType() string { return "SO_PEERCRED" }

// ServerHandshake implements credentials.TransportCredentials.
func (podCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	p := pod{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
	p.namespace, p.err = NamespaceOf(conn)
	return conn, p, nil
}

// NamespaceOf returns the inode of the network namespace of the process at the other end of a unix socket.
func NamespaceOf(conn net.Conn) (uint64, error) {
	if limited, is := conn.(interface{ NetConn() net.Conn }); is {
		conn = limited.NetConn()
	}
	socket, is := conn.(*net.UnixConn)
	if !is {
		return 0, fmt.Errorf("%w: %T is no unix socket", nsm.ErrInvalid, conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var who *unix.Ucred
	if err := errors.Join(raw.Control(func(fd uintptr) { who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }), err); err != nil {
		return 0, fmt.Errorf("find the process at the other end: %w", err)
	}
	if who.Pid == 0 {
		return 0, fmt.Errorf("%w: the process at the other end isn't seen: the manager needs the host's PID namespace", nsm.ErrAborted)
	}
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/net", who.Pid), &st); err != nil {
		return 0, fmt.Errorf("%w: the network namespace of process %d, which is at the other end: %w", nsm.ErrAborted, who.Pid, err)
	}
	return st.Ino, nil
}

// callingPod returns the network namespace of the caller.
func callingPod(ctx context.Context) (uint64, error) {
	var who pod
	p, is := peer.FromContext(ctx)
	if is {
		who, is = p.AuthInfo.(pod)
	}
	if !is {
		return 0, fmt.Errorf("%w: the call comes by no unix socket", nsm.ErrInvalid)
	}
	return who.namespace, who.err
}
