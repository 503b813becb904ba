package command

import "os"

// notifyResize sends nothing: Windows has no such signal. The next text has the new
// size.
func notifyResize(chan<- os.Signal) {}
