// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/session"
)

// NewNode is the command node.
func NewNode(env *session.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Ask the agent of this node, and look at the node"}
	cmd.AddCommand(newNodeStatus(env), newCheckSystem(env))
	return cmd
}

func newNodeStatus(env *session.Env) *cobra.Command {
	var agent string
	var all bool
	cmd := &cobra.Command{
		Use: "status", Short: "Say whether the agent of this node is ready, what is wrong, and how its BGP sessions are", Args: cobra.NoArgs,
		Long: `Say whether the agent of this node is ready, what is wrong, and how its BGP sessions are. The exit status is 1 where it isn't ready,
and 4 where no agent answers.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := env.Bound(cmd.Context())
			defer cancel()
			ready, readiness, err := Page(ctx, agent+"/readiness")
			if err != nil {
				return &session.StatusError{Status: session.StatusUnavailable, Err: fmt.Errorf("no agent answers: %w: is calico-node running here, and are HealthHost and HealthPort as --agent says?", err)}
			}
			_, wrong, err := Page(ctx, agent+"/debug/invalid")
			if err != nil {
				return err
			}
			_, state, err := Page(ctx, agent+"/debug/state?format=text")
			if err != nil {
				return err
			}
			if !all {
				state = section(state, "peers") + section(state, "problems") + section(state, "not programmed")
			}
			if _, err := fmt.Fprintf(env.Stdout, "# readiness\n%s# objects and surroundings\n%s%s", readiness, wrong, state); err != nil {
				return err
			}
			if !ready {
				return errors.New("the agent is not ready")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "http://127.0.0.1:9099", "URL of the agent's health port")
	cmd.Flags().BoolVar(&all, "all", false, "with endpoints, routes, tunnels and what is announced")
	return cmd
}

// Page fetches a page of the agent, and says whether its status is 200.
func Page(ctx context.Context, url string) (ok bool, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, "", session.Usagef("%w", err)
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, "", err
	}
	defer response.Body.Close()
	const most = 16 << 20
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return false, "", fmt.Errorf("%s: %w", url, err)
	}
	return response.StatusCode == http.StatusOK, string(body), nil
}

// section is one section of the agent's state, with its heading.
func section(state, name string) string {
	_, rest, ok := strings.Cut("\n"+state, "\n# "+name+"\n")
	if !ok {
		return ""
	}
	text, _, _ := strings.Cut("\n"+rest, "\n# ")
	return "# " + name + "\n" + strings.TrimPrefix(strings.TrimSuffix(text, "\n")+"\n", "\n")
}
