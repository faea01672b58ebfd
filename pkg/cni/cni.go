// SPDX-License-Identifier: Apache-2.0

// Package cni implements the two CNI plugins: calico, which wires a container to this host and takes its addresses from
// etcd or from another plugin, and calico-ipam, which assigns addresses from etcd for other plugins.
//
// This package has the verbs from top to bottom; the packages below it have the parts.
package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/addresses"
	"github.com/calico-go/calico/pkg/cni/attach"
	"github.com/calico-go/calico/pkg/cni/delegate"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// Call is one run of a plugin.
type Call struct {
	Plugin         protocol.Plugin
	Getenv         func(string) string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Main runs the plugin as a process and returns its exit code.
func Main(plugin protocol.Plugin, build string) int {
	if len(os.Args) > 1 {
		if code, answered := plugin.Answer(os.Args[1], os.Getenv("CNI_COMMAND"), build, os.Stdout); answered {
			return code
		}
	}
	store.DiscardLibraryLogs()
	// Neither a runtime that gives up nor one that has stopped reading may cut an ADD in half.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return Call{Plugin: plugin, Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}.Run(ctx)
}

// Run runs the verb given by the environment and stdin, and writes the result or CNI's error object to stdout. It
// returns the exit code.
func (r Call) Run(ctx context.Context) int {
	conf := &netconf.Config{CNIVersion: types100.ImplementedSpecVersion} // until it is parsed
	err := r.run(ctx, conf)
	if err == nil {
		return 0
	}
	if err := protocol.Explain(err).Print(r.Stdout, conf.CNIVersion); err != nil {
		fmt.Fprintln(r.Stderr, "write the error to stdout:", err)
	}
	return 1
}

func (r Call) run(ctx context.Context, conf *netconf.Config) error {
	env, err := protocol.ParseEnviron(r.Getenv)
	if err != nil {
		return err
	}
	if env.Command == "VERSION" {
		return protocol.Supported().Encode(r.Stdout)
	}
	ignored, err := protocol.ReadConfig(conf, r.Stdin, env.Command)
	if err != nil {
		return err
	}
	if err := protocol.CheckVersion(conf.CNIVersion, env.Command); err != nil {
		return err
	}
	if err := conf.Etcd.Environ(r.Getenv); err != nil {
		return protocol.Fail(protocol.CodeEnvironment, err, "correct the variable, or say in the network configuration where etcd is")
	}
	if !conf.Agent.SocketSet {
		conf.Agent.Socket = env.RunDir + "/agent.sock"
	}
	if !conf.Nodename.FileSet {
		conf.Nodename.File = env.VarDir + "/nodename"
	}
	now := time.Now()
	log, closeLog, logErr := protocol.NewLogger(conf.Log, r.Stdout, r.Stderr, now)
	defer closeLog()
	log = log.With("plugin", string(r.Plugin), "command", env.Command, "pid", os.Getpid())
	if env.OfOneContainer() {
		log = log.With("container", env.ContainerID, "interface", env.IfName)
	}
	if logErr != nil {
		log.Warn("no log file; stderr has the log", "error", logErr)
	}
	if err := errors.Join(env.ArgsErr, ignored); err != nil {
		log.Warn("arguments that an ADD refuses", "error", err)
	}
	c := &call{env: env, conf: conf, log: log, plugin: r.Plugin, started: now}
	return c.run(ctx, r.Stdout)
}

// call is the state of one call.
type call struct {
	env         protocol.Environ
	conf        *netconf.Config
	log         *slog.Logger
	plugin      protocol.Plugin
	started     time.Time
	node        nodeName
	etcd        *addresses.Store
	pod         gate.Pod // what the Kubernetes API knows about it; an empty UID means not asked
	inheritable func()   // makes child processes (other plugins) hold the interface's lock; may be nil
	undo        attach.Undo
	cleanup     []func() // run at the end, after undo, last first
}

// run runs the verb and, if it fails, undoes what it did.
func (c *call) run(ctx context.Context, stdout io.Writer) (err error) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("panic", "value", r, "stack", string(debug.Stack()))
			err = protocol.Bug(r)
		}
		if err != nil {
			c.undo.Run(c.log)
		}
		for _, cleanup := range slices.Backward(c.cleanup) {
			cleanup()
		}
		c.finish(err)
	}()
	find := func() (err error) {
		c.node, err = findNodeName(c.conf.Nodename, c.env.Command == "DEL", c.log)
		return err
	}
	if c.env.Command == "ADD" {
		err = attach.UntilTold(ctx, c.conf, c.log, find)
	} else {
		err = find()
	}
	if err != nil {
		return asStatus(c.env.Command, err)
	}
	c.etcd = &addresses.Store{
		Conf: c.conf, Command: c.env.Command, Node: c.node.name, Guessed: c.node.guessed, RunDir: c.env.RunDir, Log: c.log, Now: c.started,
	}
	result, err := c.verb(ctx)
	if err != nil || result == nil {
		return err
	}
	return protocol.PrintResult(result, c.conf.CNIVersion, stdout)
}

func (c *call) verb(ctx context.Context) (types.Result, error) {
	ofIPAM := c.plugin == protocol.CalicoIPAM
	switch c.env.Command {
	case "ADD":
		if ofIPAM {
			return c.ipamAdd(ctx)
		}
		return c.add(ctx)
	case "DEL":
		if ofIPAM {
			return nil, c.ipamDel(ctx)
		}
		return nil, c.del(ctx)
	case "CHECK":
		if ofIPAM {
			return nil, c.ipamCheck(ctx)
		}
		return nil, c.check(ctx)
	case "GC":
		return nil, c.gc(ctx)
	default:
		return nil, c.status(ctx)
	}
}

// finish logs the single line that every call leaves, at level debug for a STATUS without error.
func (c *call) finish(err error) {
	var attrs []any
	if c.etcd != nil {
		attrs = c.etcd.Close()
	}
	attrs = append(attrs, "took", time.Since(c.started))
	if err != nil {
		e := protocol.Explain(err)
		c.log.Error("failed", append(attrs, "code", e.Code, "error", e.Text, "hint", e.Hint)...)
		return
	}
	level := slog.LevelInfo
	if c.env.Command == "STATUS" { // runtimes call it every few seconds
		level = slog.LevelDebug
	}
	c.log.Log(context.Background(), level, "done", attrs...)
}

func (c *call) identity() protocol.Identity {
	return protocol.NewIdentity(c.conf.Name, c.node.name, c.env)
}

// wanted returns the specific addresses that were asked for.
func (c *call) wanted() []netip.Addr { return addresses.Wanted(c.conf, c.env.Args) }

// delegates reports whether another plugin assigns the addresses.
func (c *call) delegates() bool {
	return c.plugin == protocol.Calico && c.conf.IPAM.Type != netconf.CalicoIPAM && c.conf.Pod.IPAddrsNoIPAM == nil
}

func (c *call) delegate() delegate.Plugin {
	return delegate.Plugin{Conf: c.conf, Env: c.env, PodCIDRs: c.pod.PodCIDRs, Inheritable: c.inheritable}
}

// checkNames rejects names that no ADD can use: what is written under them could be neither read again nor deleted.
func (c *call) checkNames() error {
	if n := len(c.conf.Name); n > protocol.MaxNetwork {
		return protocol.Failf(protocol.CodeConfig, "give the network a shorter name", "name: of %d bytes: at most %d", n, protocol.MaxNetwork)
	}
	if err := model.CheckHost(c.node.name); err != nil {
		return protocol.Failf(protocol.CodeConfig, c.node.hint, "%s: %w", c.node.from, err)
	}
	return nil
}

// lockInterface serialises the calls for one interface of one pod until the call, including its undo, has ended.
// Nothing else serialises them, so it is an error if the lock isn't free in time. Without a writable directory it only
// warns.
func (c *call) lockInterface(ctx context.Context, hostIf string) error {
	release, inheritable, err := addresses.NewLocks(c.env.RunDir).Interface(ctx, hostIf)
	switch {
	case err == nil:
		c.inheritable = inheritable
		c.cleanup = append(c.cleanup, release)
		return nil
	case ctx.Err() != nil:
		return protocol.Failf(protocol.CodeTryAgain, "try again", "another call for the same interface is at work: %w", err)
	}
	c.log.Warn("going on without the interface's lock", "error", err)
	return nil
}
