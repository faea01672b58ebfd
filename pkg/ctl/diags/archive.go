// SPDX-License-Identifier: Apache-2.0

package diags

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os/exec"
	"path"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/resource"
)

const (
	// most is the maximum size, in bytes, of a file or a command's output in the archive.
	most = 16 << 20
	// patience is how long one command or page may take.
	patience = 15 * time.Second
)

// archive is a tar.gz being written, with a single directory. Its file failed.txt lists what can't be collected.
type archive struct {
	env    *session.Env
	dir    string
	now    time.Time
	gz     *gzip.Writer
	tar    *tar.Writer
	failed bytes.Buffer
	err    error // of writing
}

func newArchive(env *session.Env, w io.Writer, dir string, now time.Time) *archive {
	gz := gzip.NewWriter(w)
	return &archive{env: env, dir: dir, now: now, gz: gz, tar: tar.NewWriter(gz)}
}

// add adds a text, without its secrets. err, unless nil, is recorded as the reason why the text is missing or incomplete.
func (a *archive) add(name string, text []byte, err error) {
	if err != nil {
		fmt.Fprintf(&a.failed, "%s: %v\n", name, err)
	}
	if a.err != nil || len(text) == 0 {
		return
	}
	switch path.Ext(name) {
	case ".jsonl":
		text = redactKeys(text)
	case ".cfg":
		text = redactSettings(text)
	}
	text = redact(text)
	a.err = a.tar.WriteHeader(&tar.Header{Name: path.Join(a.dir, name), Mode: 0o600, Size: int64(len(text)), ModTime: a.now})
	if a.err == nil {
		_, a.err = a.tar.Write(text)
	}
}

// close completes the archive, and reports how much could not be collected.
func (a *archive) close() error {
	if n := bytes.Count(a.failed.Bytes(), []byte("\n")); n > 0 {
		fmt.Fprintf(a.env.Stderr, "calicoctl: %s could not be collected: the archive's failed.txt says why\n", resource.Count(n, "thing"))
		a.add("failed.txt", bytes.Clone(a.failed.Bytes()), nil)
	}
	return errors.Join(a.err, a.tar.Close(), a.gz.Close())
}

// own adds the output of a command of calicoctl.
func (a *archive) own(cmd *cobra.Command, name string, args ...string) {
	if cmd.Context().Err() != nil {
		return
	}
	a.env.Progress("calicoctl %v", args)
	var out, problems bytes.Buffer
	stdout, stderr := a.env.Stdout, a.env.Stderr
	a.env.Stdout, a.env.Stderr = &out, &problems
	defer func() { a.env.Stdout, a.env.Stderr = stdout, stderr }()
	root := cmd.Root()
	root.SetArgs(args)
	err := root.ExecuteContext(cmd.Context())
	if found, ok := errors.AsType[*session.StatusError](err); ok && found.Found {
		fmt.Fprintln(&out, found)
		err = nil
	}
	if err != nil {
		err = because(err, problems.Bytes())
	}
	a.add(name, out.Bytes(), err)
}

// command adds the output of another program.
func (a *archive) command(ctx context.Context, name string, args ...string) {
	if ctx.Err() != nil {
		return
	}
	a.env.Progress("%v", args)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out, problems tail
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &problems, time.Second
	err := cmd.Run()
	if err != nil {
		err = because(err, problems.text)
	}
	a.add(name, out.text, err)
}

// because adds a command's standard error to err.
func because(err error, text []byte) error {
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, bytes.ReplaceAll(text, []byte("\n"), []byte("; ")))
}

// tail keeps the last bytes written to it.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if len(t.text) > 2*most {
		t.text = bytes.Clone(t.text[len(t.text)-most:])
	}
	return len(p), nil
}

// page adds a page of the agent.
func (a *archive) page(ctx context.Context, name, url string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	text, status, err := session.Page(ctx, url)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%d %s", status, http.StatusText(status))
	}
	a.add(name, []byte(text), err)
}

// files adds the files that match a pattern; of long files, the last bytes.
func (a *archive) files(root fs.FS, pattern string) {
	names, err := fs.Glob(root, pattern)
	if err != nil {
		a.add(pattern, nil, err)
	}
	for _, name := range names {
		if info, err := fs.Stat(root, name); err == nil && !info.Mode().IsRegular() {
			continue
		}
		text, err := lastOf(root, name)
		a.add(path.Join("files", name), text, err)
	}
}

func lastOf(root fs.FS, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var t tail
	_, err = io.Copy(&t, f)
	return t.text, err
}
