// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// passHangups has SIGHUP do nothing but leave a line in the log: there is nothing
// to read again, and a terminal that goes must not take a host's agent with it.
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
