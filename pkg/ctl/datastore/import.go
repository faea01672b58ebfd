// SPDX-License-Identifier: Apache-2.0

package datastore

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// An importer writes the content of a file to etcd.
type importer struct {
	env       *session.Env
	overwrite bool
	written   int
}

// content is the content of a file.
type content struct {
	records []record
	ready   bool     // whether plugins and agents may go on afterwards
	notes   []string // about what isn't imported
	nodes   *nodes   // of an export of Calico's, whose nodes may have other names
}

func newImport(env *session.Env) *cobra.Command {
	i := &importer{env: env}
	var from string
	var renamed []string
	cmd := &cobra.Command{
		Use: "import -f FILE", Short: "Write what export printed into an etcd", Args: cobra.NoArgs,
		Long: `Write what export printed into an etcd, or what Calico's "calicoctl datastore migrate export" did, or "etcdctl get --prefix /calico/
-w json" of Calico's etcd.

The whole file is checked before anything is written. The datastore is locked meanwhile. An import that was cut off goes on when it
is given again: what etcd holds already isn't written. Where etcd has a cluster's data that the file doesn't have, nothing is
written without --overwrite, which has the file's win and leaves the rest.

Afterwards each agent enters its living pods' addresses again before any other pod starts.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" {
				return session.Usagef("want -f FILE: see %s --help", cmd.CommandPath())
			}
			nodes, err := parseNodes(renamed)
			if err != nil {
				return err
			}
			c, err := readContent(env, from, nodes)
			if err != nil {
				return session.Usagef("%w", err)
			}
			for _, note := range c.notes {
				fmt.Fprintln(env.Stderr, "calicoctl: warning:", note)
			}
			return i.run(cmd.Context(), c)
		},
	}
	cmd.Flags().StringVarP(&from, "filename", "f", "", "file to read, - = standard input")
	cmd.Flags().StringArrayVar(&renamed, "node", nil, "OLD=NEW: a node's name in the file, and here; may be given again")
	cmd.Flags().BoolVar(&env.DryRun, "dry-run", false, "say what would be written, and do nothing")
	cmd.Flags().BoolVar(&i.overwrite, "overwrite", false, "write over what etcd has otherwise, and leave what only etcd has")
	return cmd
}

func readContent(env *session.Env, name string, nodes *nodes) (content, error) {
	var data []byte
	var err error
	if name == "-" {
		name = "standard input"
		data, err = io.ReadAll(env.Stdin)
	} else {
		data, err = os.ReadFile(name)
	}
	if err != nil {
		return content{}, err
	}
	c := content{ready: true}
	if isCalico(data) || isDump(data) {
		c, err = parseCalico(name, data, nodes)
	} else {
		c.records, err = parse(name, data)
	}
	if err != nil {
		return c, err
	}
	c.records = slices.DeleteFunc(c.records, func(r record) bool {
		ready, is := r.value.(model.Ready)
		if is {
			c.ready = bool(ready)
		}
		return is
	})
	if c.records, err = nodes.renamed(c.records); err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return c, err
}

func (i *importer) run(ctx context.Context, c content) error {
	done, err := i.check(ctx, c)
	if err != nil {
		return err
	}
	if !done {
		if err := i.writeLocked(ctx, c); err != nil {
			return fmt.Errorf("%w; %d were written: the datastore stays locked until the import is given again, or calicoctl datastore unlock", err, i.written)
		}
	}
	_, err = fmt.Fprintf(i.env.Stdout, "%d written, %d there already%s\n", i.written, len(c.records)-i.written, i.env.DryRunNote())
	return err
}

// check returns an error if the import would mix the data of two clusters. done says that etcd holds the content already.
func (i *importer) check(ctx context.Context, c content) (done bool, err error) {
	snapshot, err := i.env.Read(ctx, model.PrefixRange(model.Root))
	if err != nil {
		return false, err
	}
	want := make(map[string]string, len(c.records))
	for _, r := range c.records {
		want[r.key.Path()] = r.text
	}
	var others []string
	hosts := map[string]bool{}
	equal, ready := 0, false
	for _, e := range snapshot.Entries() {
		if host, is := e.Key.(model.HostMetadataKey); is {
			hosts[host.Host] = true
		}
		switch r, err := recordOf(e); {
		case !isData(e):
		case e.Key == (model.ReadyKey{}):
			ready = e.Value == model.Ready(c.ready)
		case err != nil || want[e.Path] != r.text:
			others = append(others, e.Path)
		default:
			equal++
		}
	}
	if c.nodes != nil {
		err = c.nodes.check(hosts)
	}
	if err == nil && len(others) > 0 && !i.overwrite {
		err = fmt.Errorf("etcd holds %s that the file doesn't have, or has otherwise, such as %s: import into an etcd without a cluster, or see --overwrite",
			resource.Count(len(others), "key"), others[0])
	}
	return ready && equal == len(want), err
}

func (i *importer) writeLocked(ctx context.Context, c content) error {
	if err := putReady(ctx, i.env, false); err != nil {
		return err
	}
	for chunk := range slices.Chunk(c.records, chunkSize) {
		i.env.Progress("%d of %d written", i.written, len(c.records))
		if err := i.writeChunk(ctx, chunk); err != nil {
			return err
		}
	}
	return putReady(ctx, i.env, c.ready)
}

// chunkSize is how many keys one transaction writes: etcd accepts 128 operations and 1.5 MiB, and a block of addresses may
// take 20 KiB.
const chunkSize = 50

func (i *importer) writeChunk(ctx context.Context, chunk []record) error {
	var wants []model.Range
	for _, r := range chunk {
		wants = append(wants, model.KeyRange(r.key))
	}
	n := 0
	err := i.env.Transact(ctx, wants, func(v *model.View) (model.Change, error) {
		var change model.Change
		for _, r := range chunk {
			e := v.Get(r.key)
			if e.Exists() {
				have, err := recordOf(e)
				if err == nil && have.text == r.text {
					continue
				}
				if !i.overwrite {
					return change, fmt.Errorf("%s was written by another meanwhile", e.Path)
				}
			}
			change.Compares = append(change.Compares, v.Compare(r.key))
			change.Puts = append(change.Puts, model.Put{Key: r.key, Value: r.value})
		}
		n = len(change.Puts)
		return change, nil
	})
	if err != nil {
		return err
	}
	i.written += n
	return nil
}
