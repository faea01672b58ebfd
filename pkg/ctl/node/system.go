// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/output"
	"github.com/calico-go/calico/pkg/ctl/session"
)

// modules are the kernel modules that the agent uses, and for what.
var modules = [][2]string{
	{"nf_tables", "policy"}, {"nf_conntrack", "policy"}, {"nft_chain_nat", "masquerade"}, {"nft_connlimit", "MaxConnectionsPerEndpoint"},
	{"nft_numgen", "MaxConnectionsPerEndpoint"}, {"veth", "pods"}, {"vxlan", "pools with vxlanMode"}, {"ipip", "pools with ipipMode; without it the agent encapsulates by itself"},
}

// leastKernel is the oldest kernel without a warning. Tests run only on 6.1 and 6.18.
const leastKernel = "5.10"

// A Trait is something that a host needs, and whether it has it.
type Trait struct {
	Name, Has string
	// Do says what to do about it, "" = nothing.
	Do string
}

// System examines a host's kernel and settings, in /proc and /lib/modules.
func System(root fs.FS) []Trait {
	release, _ := fs.ReadFile(root, "proc/sys/kernel/osrelease") // "" is an unknown kernel
	kernel := Trait{Name: "kernel", Has: strings.TrimSpace(string(release))}
	if older(kernel.Has, leastKernel) {
		kernel.Do = "want " + leastKernel + " or newer"
	}
	all := []Trait{kernel}
	loaded, _ := fs.ReadFile(root, "proc/modules") // absent if the kernel has no modules at all
	dir := path.Join("lib/modules", kernel.Has)
	built, _ := fs.ReadFile(root, path.Join(dir, "modules.builtin"))
	can, err := fs.ReadFile(root, path.Join(dir, "modules.dep"))
	for _, m := range modules {
		t := Trait{Name: m[0], Has: "loaded"}
		switch file := []byte("/" + m[0] + ".ko"); {
		case bytes.Contains(append([]byte("\n"), loaded...), []byte("\n"+m[0]+" ")):
		case bytes.Contains(built, file):
			t.Has = "built in"
		case bytes.Contains(can, file):
			t.Has = "a module, not loaded yet"
		case err != nil:
			t.Has = "unknown: " + dir + " can't be read"
		default:
			t.Has, t.Do = "missing", "install the kernel's modules, or another kernel: it is for "+m[1]
		}
		all = append(all, t)
	}
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		value, err := fs.ReadFile(root, "proc/sys/"+name)
		t := Trait{Name: name, Has: strings.TrimSpace(string(value))} // the agent sets it once there are pods
		switch {
		case errors.Is(err, fs.ErrNotExist):
			t.Has = "not there"
		case err != nil:
			t.Has, t.Do = err.Error(), "run it as root"
		}
		all = append(all, t)
	}
	return all
}

// older compares two releases by their first two numbers. A text that isn't a release is older.
func older(release, than string) bool {
	number := func(text string) (n int) {
		for _, part := range append(strings.SplitN(text, ".", 3), "", "")[:2] {
			digits, _, _ := strings.Cut(part, "-")
			i, _ := strconv.Atoi(digits) // 0 if it isn't a number
			n = n<<16 + i
		}
		return n
	}
	return number(release) < number(than)
}

func newCheckSystem(env *session.Env) *cobra.Command {
	return &cobra.Command{
		Use: "checksystem", Short: "Say whether this host's kernel has what a node needs", Args: cobra.NoArgs,
		Long: `Say whether this host's kernel has what a node needs. The exit status is 1 where something is missing.`,
		RunE: func(*cobra.Command, []string) error {
			var rows [][]string
			var wrong []error
			for _, t := range System(os.DirFS("/")) {
				rows = append(rows, []string{t.Name, t.Has})
				if t.Do != "" {
					wrong = append(wrong, fmt.Errorf("%s is %s: %s", t.Name, t.Has, t.Do))
				}
			}
			if err := output.Table(env.Stdout, []string{"WHAT", "IS"}, rows); err != nil {
				return err
			}
			return errors.Join(wrong...)
		},
	}
}
