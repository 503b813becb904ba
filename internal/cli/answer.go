package cli

import "errors"

// ErrNo is returned by a command that ran well and whose answer is no. What
// there is to say has been printed; the exit code is 1.
var ErrNo = errors.New("the answer is no")
