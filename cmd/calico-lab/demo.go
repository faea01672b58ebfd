// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

func demoCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "A tour: pods get addresses, talk, and go; a host dies and comes back",
		Long: `demo makes a lab of its own with one host, adds two pods by running the plugins
and shows what goes in and out, lets the pods and the host ping each other, shows what policies do to connections, and
what etcd and the kernel hold, deletes the pods, and shows that nothing is left. Then it
makes three hosts in two racks, has their pods talk, shows the routes of each host, and
has one host die and come back.
It checks what it shows, and fails where something isn't as it should be.
Without root it runs in a user namespace.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return asRoot(cmd.Context())
			}
			if err := prepareRun(); err != nil {
				return err
			}
			if !cmd.Flags().Changed("name") {
				o.name = fmt.Sprintf("demo-%d", os.Getpid())
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Minute)
			defer cancel()
			err := runDemo(ctx, o.name, cmd.OutOrStdout())
			if _, there := os.Stat(filepath.Join(lab.Root, o.name)); cmd.Context().Err() != nil && errors.Is(there, os.ErrNotExist) {
				return errors.New("interrupted; the lab is gone")
			}
			return err
		},
	}
}

// demo is the tour of one host.
type demo struct {
	*printer
	lab  *lab.Lab
	host *lab.Host
	pods []*lab.Pod
	// quiet hides the plugins that run now.
	quiet bool
	stdin []byte // of the last ADD
	// written has the keys of the policies in etcd.
	written []model.Key
	// before is the content of the host's kernel without pods.
	before lab.Kernel
}

func runDemo(ctx context.Context, name string, w io.Writer) error {
	start := time.Now()
	p := newPrinter(w)
	p.line("Virtual hosts and pods are network namespaces of this machine; the machine's own network is not touched.")
	if err := oneHost(ctx, p, name); err != nil {
		return err
	}
	if err := twoRacks(ctx, p, name); err != nil {
		return err
	}
	p.line("\nAll of it was checked while it was shown. %.1f s.", time.Since(start).Seconds())
	p.line("To try it yourself: calico-lab up --racks 2; calico-lab pod add web --host a; calico-lab exec web -- sh; calico-lab down")
	return nil
}

// oneHost is the first part: a host and two pods.
func oneHost(ctx context.Context, p *printer, name string) (err error) {
	d := &demo{printer: p}
	d.heading("An etcd and a host")
	d.lab, err = lab.Start(ctx, lab.Config{Name: name, Hosts: []string{"a"}, Log: p.w, Trace: d.trace})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			p.showLogs(d.lab)
		}
		err = errors.Join(err, d.lab.Close())
	}()
	for _, step := range []func(context.Context) error{d.start, d.addPods, d.ping, d.policies, d.compare, d.deletePods, d.compareEmpty} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) start(context.Context) (err error) {
	d.host = d.lab.Host("a")
	d.line("calico-node runs on host a, with its gate at %s", d.host.AgentSocket())
	d.before, err = d.host.Namespace().Kernel()
	return err
}

func (d *demo) addPods(ctx context.Context) error {
	for _, name := range []string{"web", "db"} {
		d.heading("Pod %s is added: the calico plugin is run on host a, as a container runtime does", name)
		p, err := d.host.AddPod(ctx, name, lab.PodConfig{ContainerID: name})
		if err != nil {
			return err
		}
		d.pods = append(d.pods, p)
		if n := len(p.Addrs()); n != 2 {
			return fmt.Errorf("pod %s has %d addresses: want one of IPv4 and one of IPv6", name, n)
		}
	}
	d.quiet = true
	defer func() { d.quiet = false }()
	for _, p := range d.pods {
		if err := p.Check(ctx); err != nil {
			return fmt.Errorf("CHECK of pod %s: %w", p.Name(), err)
		}
	}
	d.line("\nCHECK, the verb that compares what is with what ADD said: no difference, in either pod.")
	return nil
}

// trace shows a run of a plugin.
func (d *demo) trace(c lab.Call, r lab.Reply) {
	if d.quiet {
		return
	}
	d.line("  CNI_COMMAND=%s CNI_CONTAINERID=%s CNI_IFNAME=%s CNI_NETNS=%s CNI_PATH=… %s", c.Verb, c.ContainerID, c.IfName, c.Netns, c.Plugin)
	switch {
	case c.Verb != "ADD":
		d.line("  in: the same, and what ADD returned as prevResult")
	case bytes.Equal(c.Stdin, d.stdin):
		d.line("  in: the same")
	default:
		d.json("in", c.Stdin)
		d.stdin = c.Stdin
	}
	d.json("out", r.Stdout)
	cpu := r.State.SystemTime() + r.State.UserTime()
	d.line("  %s; it took %v, %v of CPU", r.State, r.Took.Round(100*time.Microsecond), cpu.Round(100*time.Microsecond))
}

func (d *demo) ping(ctx context.Context) error {
	d.heading("They talk, over IPv4 and IPv6")
	web, db := d.pods[0], d.pods[1]
	type end struct {
		name   string
		ns     lab.Namespace
		target lab.Target
	}
	a := end{"host a", d.host.Namespace(), d.host}
	w := end{"pod web", web.Namespace(), web}
	b := end{"pod db", db.Namespace(), db}
	for _, pair := range [][2]end{{w, b}, {b, w}, {w, a}, {a, w}, {b, a}, {a, b}} {
		for _, addr := range pair[1].target.Addrs() {
			took, err := pair[0].ns.Ping(ctx, addr)
			if err != nil {
				return fmt.Errorf("%s to %s: %w", pair[0].name, pair[1].name, err)
			}
			d.line("  %-7s → %-7s  %-40s answered in %v", pair[0].name, pair[1].name, addr, took.Round(10*time.Microsecond))
		}
	}
	return nil
}

// showLogs prints what may explain why the demo failed.
func (p *printer) showLogs(l *lab.Lab) {
	for _, file := range l.LogFiles() {
		if text := lab.Tail(file, 10); text != "" {
			p.line("\nthe end of %s:\n%s", file, text)
		}
	}
}
