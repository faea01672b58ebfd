// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// passHangups makes SIGHUP do nothing but log a line: there is nothing to read again, and a closed terminal must not end a host's agent.
func passHangups(log *slog.Logger) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range hangups {
			log.Info("SIGHUP does nothing: settings in etcd apply as they change, flags, environment and file when the agent is started, and a log file that was renamed is opened anew")
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
		<-ended
	}
}
