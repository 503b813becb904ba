package machine

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Until retries the check until it passes, the limit is reached or the context
// ends; it returns the last error of the check.
func Until(ctx context.Context, limit time.Duration, check func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || !Sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("not after %s: %w", limit, err)
		}
	}
}

// Sleep waits, and returns false when the context ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Output runs a program and returns what it printed on standard output; the
// error has what it printed on standard error.
func Output(cmd *exec.Cmd) (string, error) {
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err, strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}
