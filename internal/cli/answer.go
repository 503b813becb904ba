package cli

import "errors"

// ErrNo is returned by a command that succeeded and whose answer is no. It has
// printed its output; the exit code is 1.
var ErrNo = errors.New("the answer is no")
