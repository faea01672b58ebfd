// SPDX-License-Identifier: Apache-2.0

// Package nsmclient implements what a pod does to get a network service connection, or to offer a network service:
// `nsmctl request`, `nsmctl close` and `nsmctl serve`.
package nsmclient

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/kernel/crossconnect"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/pkg/nsmgrpc"
	"golang.org/x/sys/unix"
)

// removeTimeout is how long an endpoint that ends waits for the manager to confirm.
const removeTimeout = 5 * time.Second

// ErrUsage is in the error's chain if the command line is invalid.
var ErrUsage = errors.New("usage: nsmctl request|close|serve -service NAME [flags]; nsmctl request -h lists them")

// Run executes the arguments until ctx ends. It writes results for the pod to out, and help and flag errors to errOut.
func Run(ctx context.Context, args []string, out, errOut io.Writer) error {
	if len(args) == 0 {
		return ErrUsage
	}
	if slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		_, err := fmt.Fprint(out, help)
		return err
	}
	verb, ok := map[string]func(*command) error{"request": (*command).request, "close": (*command).end, "serve": (*command).serve}[args[0]]
	if !ok {
		return fmt.Errorf("unknown command %q: %w", args[0], ErrUsage)
	}
	inode, err := crossconnect.Own()
	if err != nil {
		return err
	}
	c := &command{flags: flag.NewFlagSet("nsmctl "+args[0], flag.ContinueOnError), inode: inode, out: out, ctx: ctx, args: args[1:]}
	c.flags.SetOutput(errOut)
	c.flags.StringVar(&c.service, "service", "", "the `name` of the network service")
	c.flags.StringVar(&c.directory, "directory", nsmgrpc.DefaultDirectory, "where the manager's sockets are")
	return verb(c)
}

// A command is one invocation.
type command struct {
	ctx                context.Context
	flags              *flag.FlagSet
	args               []string
	service, directory string
	inode              uint64
	out                io.Writer
}

func (c *command) parse() error {
	if err := c.flags.Parse(c.args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if c.service == "" || c.flags.NArg() > 0 {
		return fmt.Errorf("-service is required, and there are no other arguments: %w", ErrUsage)
	}
	if err := unix.Access(c.directory, unix.W_OK); errors.Is(err, unix.EACCES) {
		return fmt.Errorf("sockets in %s: %w: run as root, in a pod with securityContext.runAsUser: 0", c.directory, err)
	}
	return nil
}

const help = `usage: nsmctl request -service NAME [flags]   have a connection to a network service, and print it as JSON
       nsmctl close -service NAME [flags]     end it
       nsmctl serve -service NAME [flags]     offer a network service until told to end
-h after one of them lists its flags; nsmctl -version prints the version.
`

func (c *command) requestID() *string {
	return c.flags.String("request-id", fmt.Sprintf("netns-%d", c.inode), "unique to the pod and the connection, such as the pod's `UID`; the same again is the same connection")
}

// end ends a connection.
func (c *command) end() error {
	id := c.requestID()
	if err := c.parse(); err != nil {
		return err
	}
	return nsmgrpc.Disconnect(c.ctx, filepath.Join(c.directory, nsmgrpc.ClientSocket), nsm.Key{ID: *id, Service: c.service})
}

// request asks for a connection and prints it as JSON.
func (c *command) request() error {
	params := map[string]string{}
	id := c.requestID()
	timeout := c.flags.Duration("timeout", time.Minute, "how long to try, where no endpoint is there yet")
	c.parameter(params, nsm.ParamName, "interface", "the `name` of the interface; nsm0, or the next that is free")
	addressed := c.flags.Bool("addressed", false, "have an address from the endpoint's pools")
	defaultRoute := c.flags.Bool("default-route", false, "take the endpoint's default route, where it offers one")
	c.parameter(params, nsm.ParamExcluded, "exclude", "`prefixes` that the connection may not use, with commas between them")
	c.parameter(params, nsm.ParamAdditional, "additional", "more prefixes to have: `4/28,6/64`")
	if err := c.parse(); err != nil {
		return err
	}
	if *addressed {
		params[nsm.ParamAddressed] = "true"
	}
	if *defaultRoute {
		params[nsm.ParamDefaultRoute] = "true"
	}
	r := nsm.Request{ID: *id, Service: c.service, Namespace: c.inode, Interfaces: []nsm.Interface{{Type: nsm.Kernel, Parameters: params}}}
	ctx, cancel := context.WithTimeout(c.ctx, *timeout)
	defer cancel()
	reply, err := retry(ctx, c.flags.Output(), func() (nsm.Reply, error) {
		return nsmgrpc.Request(ctx, filepath.Join(c.directory, nsmgrpc.ClientSocket), r)
	})
	if err != nil {
		return err
	}
	reply.Parameters["interface"] = reply.Interface.Parameters[nsm.ParamName]
	return json.NewEncoder(c.out).Encode(reply.Parameters)
}

// retryPause is the pause between two attempts.
const retryPause = time.Second

// retry calls fn until it succeeds, is refused for good, or the context ends: a pod may start before what it needs. It
// reports each reason once.
func retry[T any](ctx context.Context, errOut io.Writer, fn func() (T, error)) (T, error) {
	for said := ""; ; {
		v, err := fn()
		if err == nil || errors.Is(err, nsm.ErrInvalid) || errors.Is(err, nsm.ErrExists) {
			return v, err
		}
		if text := err.Error(); text != said && ctx.Err() == nil {
			said = text
			_, _ = fmt.Fprintf(errOut, "trying again: %s\n", text) // the error is also returned in the end
		}
		select {
		case <-ctx.Done():
			return v, err
		case <-time.After(retryPause):
		}
	}
}

// serve offers a service until the context ends. Existing connections stay.
func (c *command) serve() error {
	params := map[string]string{}
	name := c.flags.String("name", fmt.Sprintf("netns-%d", c.inode), "the endpoint's `name`, such as the pod's; unique on the node")
	socket := c.flags.String("socket", "", "the `path` of the endpoint's socket, which the manager sees as well; in -directory")
	c.parameter(params, nsm.ParamPools, "pools", "`prefixes` from which clients get addresses, with commas between them")
	c.parameter(params, nsm.ParamRoutes, "routes", "`prefixes` that clients send to this endpoint")
	if err := c.parse(); err != nil {
		return err
	}
	if *socket == "" {
		*socket = filepath.Join(c.directory, fmt.Sprintf("nse-%d-%s.sock", c.inode, c.service))
	}
	e := nsm.Endpoint{Service: c.service, Name: *name, Socket: *socket, Interfaces: []nsm.Interface{{Type: nsm.Kernel, Parameters: params}}}
	if err := e.Check(); err != nil {
		return err
	}
	listener, err := nsmgrpc.Listen(*socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- nsmgrpc.ServeEndpoint(ctx, listener, c.inode, func(id, service string) error {
			if service != c.service {
				return fmt.Errorf("%w: this endpoint offers %q, not %q", nsm.ErrNotFound, c.service, service)
			}
			_, err := fmt.Fprintf(c.out, "connection %s\n", id)
			return err
		})
	}()
	manager := filepath.Join(c.directory, nsmgrpc.EndpointSocket)
	_, err = retry(ctx, c.flags.Output(), func() (struct{}, error) { return struct{}{}, nsmgrpc.Advertise(ctx, manager, *name, e) })
	if err == nil {
		_, err = fmt.Fprintf(c.out, "serving %s\n", c.service)
	}
	if err == nil {
		<-ctx.Done()
		late, enough := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer enough()
		err = nsmgrpc.Remove(late, manager, *name, e)
	} else if c.ctx.Err() != nil {
		err = nil
	}
	cancel()
	return errors.Join(err, <-served)
}

// parameter defines a flag that becomes a parameter of the interface.
func (c *command) parameter(params map[string]string, name, flagName, usage string) {
	c.flags.Func(flagName, usage, func(value string) error {
		params[name] = value
		return nil
	})
}
