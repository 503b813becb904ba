//go:build !windows

package command

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyResize sends a signal each time the terminal is resized.
func notifyResize(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH) }
