package local

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// heldError reports that another process holds a lock.
type heldError struct{ holder string }

func (e *heldError) Error() string { return "locked by " + e.holder }

// takeLock locks a file, creates it if it is missing, and writes into it who
// holds it. The lock lasts until release is called or the process ends, in
// whatever way. If another process holds it, the error is a [heldError].
func takeLock(path, holder string) (release func(), err error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			text, readErr := io.ReadAll(io.LimitReader(file, 4096))
			held := &heldError{holder: cmp.Or(strings.TrimSpace(string(text)), "another process")}
			return nil, errors.Join(held, readErr, file.Close())
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		if !isAt(file, path) { // its holder removed it after it was opened here
			_ = file.Close()
			continue
		}
		if err := overwrite(file, holder+"\n"); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		return func() {
			_ = os.Remove(path)
			_ = file.Close()
		}, nil
	}
}

func overwrite(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return errors.Join(err, file.Truncate(int64(len(text))))
}

// isAt reports whether the file is the one at the path.
func isAt(file *os.File, path string) bool {
	open, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(open, there)
}
