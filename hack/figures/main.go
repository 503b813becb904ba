// Command figures measures code: how long files and functions are, how branched,
// how much is explained.
//
//	go run ./hack/figures                     the product: api, cmd and internal
//	go run ./hack/figures internal/place      a folder
//	go run ./hack/figures -worst 10           and what stands out
//
// Tests, test data and generated files do not count. What is counted how is said
// in docs/architecture.md, which shows the figures beside those of other projects.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("figures", flag.ContinueOnError)
	flags.SetOutput(stderr)
	worst := flags.Int("worst", 0, "list this many of the longest files and functions, the most branched ones, and all that is exported without a comment")
	if err := flags.Parse(args); err != nil {
		return err
	}
	folders := flags.Args()
	if len(folders) == 0 {
		folders = []string{"api", "cmd", "internal"}
	}
	var code Code
	for _, folder := range folders {
		if err := code.AddFolder(folder); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(stdout, "%s\n%s\n", head, code.Row()); err != nil {
		return err
	}
	if *worst > 0 {
		return code.writeWorst(stdout, *worst)
	}
	return nil
}
