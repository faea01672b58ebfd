// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Page fetches a page of an agent, up to 16 MiB of it. text is the body, whatever the status.
func Page(ctx context.Context, url string) (text string, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", 0, Usagef("%w", err)
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer response.Body.Close()
	const most = 16 << 20
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		err = fmt.Errorf("%s: %w", url, err)
	}
	return string(body), response.StatusCode, err
}
