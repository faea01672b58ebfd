// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"sync"
)

// problems are the objects of etcd that cannot be acted upon: each is logged
// once, counted while it lasts, and logged again when it is over.
type problems struct {
	log *slog.Logger

	mu   sync.Mutex
	open map[string]string // by path
}

func newProblems(log *slog.Logger) *problems {
	return &problems{log: log, open: map[string]string{}}
}

// maxReason bounds what is logged of a value that somebody wrote to etcd.
const maxReason = 400

// report says how it stands with an object: nil is well.
func (p *problems) report(path string, err error) {
	text := errorText(err)
	if len(text) > maxReason {
		text = text[:maxReason] + "…"
	}
	p.mu.Lock()
	before := p.open[path]
	if text == "" {
		delete(p.open, path)
	} else {
		p.open[path] = text
	}
	p.mu.Unlock()
	switch {
	case text == before:
	case text == "":
		p.log.Info("object in etcd is in order again", "key", path)
	default:
		p.log.Warn("object in etcd is not acted upon", "key", path, "reason", text)
	}
}

// count is how many objects are not in order.
func (p *problems) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}
