// SPDX-License-Identifier: Apache-2.0

package datastore

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/client"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// An importer writes the content of a file to etcd.
type importer struct {
	env            *session.Env
	overwrite      bool
	equal, written int
}

// content is the content of a file.
type content struct {
	resources []resource.Resource // in an export of Calico's, which consists of resources
	records   []record
	ready     bool     // whether plugins and agents may go on afterwards
	notes     []string // about what isn't imported
}

func newImport(env *session.Env) *cobra.Command {
	i := &importer{env: env}
	var from string
	cmd := &cobra.Command{
		Use: "import -f FILE", Short: "Write what export printed into an etcd", Args: cobra.NoArgs,
		Long: `Write what export, or Calico's "calicoctl datastore migrate export", printed into an etcd.

The whole file is checked before anything is written. The datastore is locked meanwhile. An import that was cut off goes on when it
is given again: what etcd holds already isn't written. Where etcd has a cluster's data that the file doesn't have, nothing is
written without --overwrite, which has the file's win and leaves the rest.

Afterwards each agent enters its living pods' addresses again before any other pod starts.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" {
				return session.Usagef("want -f FILE: see %s --help", cmd.CommandPath())
			}
			c, err := readContent(env, from)
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
	cmd.Flags().BoolVar(&env.DryRun, "dry-run", false, "say what would be written, and do nothing")
	cmd.Flags().BoolVar(&i.overwrite, "overwrite", false, "write over what etcd has otherwise, and leave what only etcd has")
	return cmd
}

func readContent(env *session.Env, name string) (content, error) {
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
	if isCalico(data) {
		return parseCalico(name, data)
	}
	records, err := parse(name, data)
	if err != nil {
		return content{}, err
	}
	c := content{ready: true}
	for _, r := range records {
		if r.key == (model.ReadyKey{}) {
			c.ready = bool(r.value.(model.Ready))
			continue
		}
		c.records = append(c.records, r)
	}
	return c, nil
}

func (i *importer) run(ctx context.Context, c content) error {
	if err := i.check(ctx, c); err != nil {
		return err
	}
	if err := putReady(ctx, i.env, false); err != nil {
		return err
	}
	err := i.write(ctx, c)
	if err == nil {
		err = putReady(ctx, i.env, c.ready)
	}
	if err != nil {
		return fmt.Errorf("%w; %d were written: the datastore stays locked until the import is given again, or calicoctl datastore unlock", err, i.written)
	}
	_, err = fmt.Fprintf(i.env.Stdout, "%d written, %d there already%s\n", i.written, i.equal, i.env.DryRunNote())
	return err
}

// check returns an error if the import would mix the data of two clusters.
func (i *importer) check(ctx context.Context, c content) error {
	if i.overwrite {
		return nil
	}
	snapshot, err := i.env.Read(ctx, model.PrefixRange(model.Root))
	if err != nil {
		return err
	}
	want := make(map[string]string, len(c.records))
	for _, r := range c.records {
		want[r.key.Path()] = r.text
	}
	var others []string
	for _, e := range snapshot.Entries() {
		if !isData(e) || e.Key == (model.ReadyKey{}) {
			continue
		}
		if r, err := recordOf(e); err != nil || want[e.Path] != r.text {
			others = append(others, e.Path)
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("etcd holds %s that the file doesn't have, or has otherwise, such as %s: import into an etcd without a cluster, or see --overwrite",
			resource.Count(len(others), "key"), others[0])
	}
	return nil
}

func (i *importer) write(ctx context.Context, c content) error {
	total := len(c.resources) + len(c.records)
	s, err := i.env.Store(ctx)
	if err != nil {
		return err
	}
	api := client.New(s)
	api.DryRun = i.env.DryRun
	for n, r := range c.resources {
		i.env.Progress("%d of %d written", n, total)
		bound, cancel := i.env.Bound(ctx)
		outcome, err := api.Apply(bound, r)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", r.Place(), err)
		}
		if outcome == client.Unchanged {
			i.equal++
		} else {
			i.written++
		}
	}
	for chunk := range slices.Chunk(c.records, chunkSize) {
		i.env.Progress("%d of %d written", i.equal+i.written, total)
		if err := i.writeChunk(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
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
	i.written, i.equal = i.written+n, i.equal+len(chunk)-n
	return nil
}
