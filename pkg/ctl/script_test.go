// SPDX-License-Identifier: Apache-2.0

package ctl_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/ctl"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/test/etcd"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"calicoctl": func() {
			env := &session.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(), Version: "1.2.3"}
			os.Exit(ctl.Run(context.Background(), env, os.Args[1:]))
		},
	})
}

// TestScripts are sessions at a terminal, each on an etcd of its own. Beside testscript's commands they have
//
//	put KEY VALUE    write a key
//	remove KEY       delete one
//	keys [PREFIX]    print what etcd holds below a prefix
//	dump FILE        write what etcdctl get --prefix /calico/ -w json prints, and delete it all
//	revision         remember etcd's revision
//	unwritten        fail if it is another one
//	status N CMD...  run a command that must end with this status
//	page NAME        run the commands of a page of docs, but those that need a node
func TestScripts(t *testing.T) {
	docs, err := filepath.Abs("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			s := etcd.New(env.T().(testing.TB))
			env.Setenv("ETCD_ENDPOINTS", "http://"+s.Addr())
			env.Setenv("DATASTORE_TYPE", "etcdv3")
			env.Values["etcd"] = s
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"put": func(ts *testscript.TestScript, _ bool, args []string) {
				of(ts).Client(func(ctx context.Context, c *clientv3.Client) error {
					_, err := c.Put(ctx, args[0], args[1])
					return err
				})
			},
			"remove": func(ts *testscript.TestScript, _ bool, args []string) {
				of(ts).Client(func(ctx context.Context, c *clientv3.Client) error {
					_, err := c.Delete(ctx, args[0])
					return err
				})
			},
			"keys": func(ts *testscript.TestScript, _ bool, args []string) {
				of(ts).Client(func(ctx context.Context, c *clientv3.Client) error {
					found, err := c.Get(ctx, append(args, "/calico/")[0], clientv3.WithPrefix())
					if err != nil {
						return err
					}
					for _, kv := range found.Kvs {
						_, _ = ts.Stdout().Write([]byte(string(kv.Key) + " " + string(kv.Value) + "\n")) // a buffer
					}
					return nil
				})
			},
			"dump": func(ts *testscript.TestScript, _ bool, args []string) {
				of(ts).Client(func(ctx context.Context, c *clientv3.Client) error {
					found, err := c.Get(ctx, "/calico/", clientv3.WithPrefix())
					if err != nil {
						return err
					}
					data, err := json.Marshal(found)
					if err != nil {
						return err
					}
					if err := os.WriteFile(ts.MkAbs(args[0]), data, 0o600); err != nil {
						return err
					}
					_, err = c.Delete(ctx, "/calico/", clientv3.WithPrefix())
					return err
				})
			},
			"revision": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Setenv("REVISION", revision(ts)) },
			"unwritten": func(ts *testscript.TestScript, _ bool, _ []string) {
				if was, now := ts.Getenv("REVISION"), revision(ts); was != now {
					ts.Fatalf("etcd is at revision %s, and was at %s", now, was)
				}
			},
			"page": func(ts *testscript.TestScript, _ bool, args []string) {
				page, err := os.ReadFile(filepath.Join(docs, args[0]))
				ts.Check(err)
				script := "install() { cat >/dev/null; }\ncalicoctl() { [ \"$1\" = node ] || command calicoctl \"$@\"; }\n"
				for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(page, -1) {
					script += string(block[1])
				}
				ts.Check(ts.Exec("sh", "-ec", script))
			},
			"status": func(ts *testscript.TestScript, _ bool, args []string) {
				err := ts.Exec(args[1], args[2:]...)
				got := 0
				var exit *exec.ExitError
				if errors.As(err, &exit) {
					got = exit.ExitCode()
				} else if err != nil {
					ts.Fatalf("%v", err)
				}
				if strconv.Itoa(got) != args[0] {
					ts.Fatalf("status %d: want %s", got, args[0])
				}
			},
		},
	})
}

func of(ts *testscript.TestScript) *etcd.Server { return ts.Value("etcd").(*etcd.Server) }

func revision(ts *testscript.TestScript) string {
	var revision int64
	of(ts).Client(func(ctx context.Context, c *clientv3.Client) error {
		found, err := c.Get(ctx, "/")
		if err == nil {
			revision = found.Header.Revision
		}
		return err
	})
	return strconv.FormatInt(revision, 10)
}
