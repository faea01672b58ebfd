// SPDX-License-Identifier: Apache-2.0

// Command calico-node is the agent of a host: see package agent.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/calico-go/calico/pkg/agent"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/kernel/legacy"
	"github.com/calico-go/calico/pkg/nft"
)

// version is what the linker sets: see the Makefile.
var version = "0.1.0"

func main() {
	hostname, _ := os.Hostname() // it matters only where NODENAME isn't set, and is refused there
	in, err := agent.ParseConfig(os.Args[1:], os.Environ(), hostname, os.Stderr)
	os.Exit(run.Main("calico-node", version, err, func(ctx context.Context) error {
		if in.CleanUp {
			return cleanUp(ctx, in.Yes)
		}
		in.Config.FromProcess(version, os.Environ())
		return agent.Run(ctx, in.Config)
	}))
}

// cleanUp lists what an older version has left on the host, and removes it if that is wanted.
func cleanUp(ctx context.Context, remove bool) error {
	found, err := legacy.Find(ctx)
	if err == nil {
		err = found.Print(os.Stdout)
	}
	if err == nil && remove && len(found.Tables) > 0 {
		err = succeeded()
	}
	if err == nil && !found.Empty() && remove {
		err = found.Remove(ctx)
	}
	switch {
	case err != nil:
		return err
	case found.Empty():
		fmt.Println("nothing of an older version is left to remove")
	case remove:
		fmt.Println("removed")
	default:
		fmt.Println("nothing is removed yet: add -yes for that, once calico-node runs and is ready on this host")
	}
	return nil
}

// succeeded says why the chains of an older version are still needed: nothing else holds policy, and pods would be open.
func succeeded() error {
	there, err := nft.Stands()
	if err == nil && !there {
		err = fmt.Errorf("nothing is removed: without table inet %s pods would be open; start calico-node, wait until it is ready, and run this again", nft.TableName)
	}
	return err
}
