// SPDX-License-Identifier: Apache-2.0

// Package cni is the two CNI plugins: calico, which wires a container to this
// host and takes its addresses from etcd or from another plugin, and
// calico-ipam, which gives addresses from etcd to other plugins.
//
// It does not build on the CNI project's skel package: that reads any amount
// of stdin, finds out that CNI_NETNS is wrong only after an ADD has done its
// work, and then undoes nothing.
package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/store"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// Plugin is one of the two.
type Plugin string

const (
	// Calico is a main plugin: it makes interfaces.
	Calico Plugin = "calico"
	// CalicoIPAM is an IPAM plugin: it gives addresses to a main plugin.
	CalicoIPAM Plugin = "calico-ipam"
)

// Call is one run of a plugin.
type Call struct {
	Plugin         Plugin
	Getenv         func(string) string
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	exits bool // the process does: the kernel closes what is open
}

// supported lists the versions of the CNI specification that we speak.
func supported() version.PluginInfo {
	return version.PluginSupports("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
}

// Main runs the plugin as a process and returns its exit code.
func Main(plugin Plugin, build string) int {
	if len(os.Args) > 1 {
		if code, answered := plugin.answer(os.Args[1], os.Getenv("CNI_COMMAND"), build, os.Stdout); answered {
			return code
		}
	}
	store.DiscardLibraryLogs()
	// A runtime that gives up must not cut an ADD in half, nor must one that
	// no longer reads.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return Call{Plugin: plugin, Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, exits: true}.Run(ctx)
}

// Run does what the environment and stdin say, and writes the result or CNI's
// error object to stdout. It returns the exit code.
func (c Call) Run(ctx context.Context) int {
	conf := &netconf.Config{CNIVersion: types100.ImplementedSpecVersion} // until we know
	err := c.run(ctx, conf)
	if err == nil {
		return 0
	}
	if err := explain(err).print(c.Stdout, conf.CNIVersion); err != nil {
		fmt.Fprintln(c.Stderr, "write the error to stdout:", err)
	}
	return 1
}

func (c Call) run(ctx context.Context, conf *netconf.Config) error {
	env, err := parseEnviron(c.Getenv)
	if err != nil {
		return err
	}
	if env.command == "VERSION" {
		return supported().Encode(c.Stdout)
	}
	passed, err := readConfig(conf, c.Stdin, env.command)
	if err != nil {
		return err
	}
	if err := checkVersion(conf.CNIVersion, env.command); err != nil {
		return err
	}
	if c.Plugin == Calico && env.delegated != "" {
		// It was never given anything to give back.
		if env.command == "DEL" || env.command == "GC" {
			return nil
		}
		return failf(CodeConfig, "set ipam.type to calico-ipam, or to another IPAM plugin",
			"ipam.type %s is a main plugin: it asks ipam.type for addresses, which is itself", env.delegated)
	}
	if !conf.AgentSocketSet {
		conf.AgentSocket = env.runDir + "/agent.sock"
	}
	if !conf.Nodename.FileSet {
		conf.Nodename.File = env.varDir + "/nodename"
	}
	now := time.Now()
	log, closeLog, logErr := newLogger(conf.Log, c.Stdout, c.Stderr, now)
	defer closeLog()
	log = log.With("plugin", string(c.Plugin), "command", env.command, "pid", os.Getpid())
	if len(verbs[env.command]) > 0 { // it is about one container
		log = log.With("container", env.containerID, "interface", env.ifName)
	}
	if logErr != nil {
		log.Warn("no log file; stderr has the log", "error", logErr)
	}
	if err := errors.Join(env.argsErr, passed); err != nil {
		log.Warn("arguments that an ADD refuses", "error", err)
	}
	s := &session{env: env, conf: conf, log: log, locks: newLocks(env.runDir), plugin: c.Plugin, started: now, exits: c.exits}
	return s.call(ctx, c.Stdout)
}

// call runs the verb and, where it fails, takes back what it did.
func (s *session) call(ctx context.Context, stdout io.Writer) (err error) {
	defer func() {
		if r := recover(); r != nil {
			s.log.Error("panic", "value", r, "stack", string(debug.Stack()))
			err = bug(r)
		}
		if err != nil {
			s.named = true // what this call has written is its own to take back
			s.undo.run(s.log)
		}
		for _, cleanup := range slices.Backward(s.cleanup) {
			cleanup()
		}
		s.finish(err)
	}()
	s.node, s.nodeFrom, err = nodename(s.conf.Nodename, s.log)
	if err != nil && s.env.command == "DEL" {
		// It takes away what there is without the file, too: what an ADD has left names the node.
		s.log.Warn("going on by the system's host name", "error", err)
		s.conf.Nodename.FileOptional, s.conf.Nodename.FileRequired, s.guessed = true, false, true
		s.node, s.nodeFrom, err = nodename(s.conf.Nodename, s.log)
	}
	if err != nil {
		if s.env.command == "STATUS" {
			err = &Error{Code: CodeUnavailable, Text: explain(err).Text, Hint: explain(err).Hint, Err: err}
		}
		return err
	}
	s.agent = sync.OnceValue(func() error { return s.askAgent(ctx) })
	var result types.Result
	switch s.env.command {
	case "ADD":
		if s.plugin == CalicoIPAM {
			result, err = s.ipamAdd(ctx)
		} else {
			result, err = s.add(ctx)
		}
	case "DEL":
		if s.plugin == CalicoIPAM {
			err = s.ipamDel(ctx)
		} else {
			err = s.del(ctx)
		}
	case "CHECK":
		if s.plugin == CalicoIPAM {
			err = s.ipamCheck(ctx)
		} else {
			err = s.check(ctx)
		}
	case "GC":
		err = s.gc(ctx)
	case "STATUS":
		err = s.status(ctx)
	}
	if err != nil || result == nil {
		return err
	}
	converted, err := result.GetAsVersion(s.conf.CNIVersion)
	if err != nil {
		return failf(CodeVersion, "use a newer cniVersion", "the result as version %s: %w", s.conf.CNIVersion, err)
	}
	if err := converted.PrintTo(stdout); err != nil {
		return failf(CodeIO, "", "write the result: %w", err)
	}
	// By hand, the shell's prompt shall not stand behind the last brace.
	if _, err := io.WriteString(stdout, "\n"); err != nil {
		return failf(CodeIO, "", "write the result: %w", err)
	}
	return nil
}

// finish writes the one line that every call leaves in the log.
func (s *session) finish(err error) {
	took := time.Since(s.started)
	var attrs []any
	if s.client != nil {
		n := s.client.Counters()
		attrs = append(attrs, "round_trips", n.RoundTrips, "bytes_read", n.BytesRead, "conflicts", n.Conflicts)
		if !s.exits {
			_ = s.client.Close() // nothing is in flight any more
		}
	}
	attrs = append(attrs, "took", took)
	if err != nil {
		e := explain(err)
		s.log.Error("failed", append(attrs, "code", e.Code, "error", e.Text, "hint", e.Hint)...)
		return
	}
	s.log.Info("done", attrs...)
}

// How much stdin is read. A configuration is a few kilobytes; what GC gets
// grows with the number of containers.
const (
	maxStdin   = 512 << 10
	maxStdinGC = 16 << 20
)

// readConfig leaves in conf what could be read, with an error too. Of a DEL passed says what
// of it is left out.
func readConfig(conf *netconf.Config, stdin io.Reader, command string) (passed, err error) {
	limit := maxStdin
	if command == "GC" {
		limit = maxStdinGC
	}
	data, err := io.ReadAll(io.LimitReader(stdin, int64(limit)+1))
	switch {
	case err != nil:
		return nil, failf(CodeIO, "", "read the network configuration from stdin: %w", err)
	case len(data) > limit:
		return nil, failf(CodeDecode, "pass one plugin's network configuration on stdin, and nothing else",
			"network configuration: stdin has more than %d KiB", limit>>10)
	}
	var parsed *netconf.Config
	if command == "DEL" {
		parsed, passed, err = netconf.ParseDEL(data)
	} else {
		parsed, err = netconf.Parse(data)
	}
	var syntax *netconf.SyntaxError
	if errors.As(err, &syntax) {
		return nil, fail(CodeDecode, err, "pass one plugin's network configuration on stdin, as JSON")
	}
	*conf = *parsed
	if conf.CNIVersion == "" {
		conf.CNIVersion = "0.1.0"
	}
	if err != nil {
		return nil, fail(CodeConfig, err, "correct the network configuration, most often in /etc/cni/net.d")
	}
	return passed, nil
}

// since is the version that introduced a verb.
var since = map[string]string{"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}

func checkVersion(v, command string) error {
	if !slices.Contains(supported().SupportedVersions(), v) {
		return failf(CodeVersion, "set cniVersion to one of 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0 and 1.1.0", "cniVersion %q is not supported", v)
	}
	if low := since[command]; low != "" {
		if ok, err := version.GreaterThanOrEqualTo(v, low); err != nil || !ok {
			return failf(CodeVersion, "set cniVersion to "+low+" or later", "cniVersion %s does not know %s", v, command)
		}
	}
	return nil
}

// session is the state of one call.
type session struct {
	env      environ
	conf     *netconf.Config
	log      *slog.Logger
	locks    locks
	plugin   Plugin
	started  time.Time
	exits    bool
	lock     *os.File // holds the lock of the call's interface, nil before
	node     string
	nodeFrom nameSource
	guessed  bool         // node may be another's name, or none
	named    bool         // node is known to be this host's name
	agent    func() error // asks the agent, once, whether it is
	undo     undoStack
	cleanup  []func() // run at the end, after undo, last first
	client   *store.Client
}
