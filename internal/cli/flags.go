package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/daybreak-gpu/daybreak/internal/similar"
)

// groupKey marks a flag with its group.
const groupKey = "daybreak_group"

// Group adds flags to the command that help and the reference show under a
// title of their own. Groups stand in the order in which they are added.
func Group(cmd *cobra.Command, title string, add func(*pflag.FlagSet)) {
	set := pflag.NewFlagSet(title, pflag.ContinueOnError)
	add(set)
	set.VisitAll(func(f *pflag.Flag) {
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[groupKey] = []string{title}
	})
	cmd.Flags().AddFlagSet(set)
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[groupKey] += title + "\n"
}

// FlagGroup is some flags of a command.
type FlagGroup struct {
	// Title is empty for the flags that are in no group; they come first.
	Title string
	Flags *pflag.FlagSet
}

// Groups returns the flags of the command, those that are hidden left out.
func Groups(cmd *cobra.Command) []FlagGroup {
	titles := append([]string{""}, strings.Split(strings.TrimSuffix(cmd.Annotations[groupKey], "\n"), "\n")...)
	var groups []FlagGroup
	for _, title := range slices.Compact(titles) {
		set := pflag.NewFlagSet(title, pflag.ContinueOnError)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && strings.Join(f.Annotations[groupKey], "") == title {
				set.AddFlag(f)
			}
		})
		if set.HasFlags() {
			groups = append(groups, FlagGroup{title, set})
		}
	}
	return groups
}

// usageColumns is how wide the texts of flags may be.
const usageColumns = 110

// usage shows the flags by group.
func usage(cmd *cobra.Command) string {
	var b strings.Builder
	for i, g := range Groups(cmd) {
		title := g.Title + " flags"
		if g.Title == "" {
			title = "Flags"
		}
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s:\n%s", title, g.Flags.FlagUsagesWrapped(usageColumns))
	}
	return strings.TrimRight(b.String(), "\n")
}

// flagError adds where the flags are listed, the flags that a mistyped one
// resembles, and what the flag with an invalid value takes.
func flagError(cmd *cobra.Command, err error) error {
	if invalid, is := errors.AsType[*pflag.InvalidValueError](err); is {
		err = valueError(invalid)
	}
	near := ""
	if unknown, is := errors.AsType[*pflag.NotExistError](err); is && len(unknown.GetSpecifiedName()) > 1 {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		near = resembling("--"+unknown.GetSpecifiedName(), names)
	}
	return fmt.Errorf("%w%s (see %s --help)", err, near, cmd.CommandPath())
}

// valueKinds has what a flag takes by the type of its value. The parsers of these
// types answer in words of Go.
var valueKinds = map[string]string{
	"bool": "true or false",
	"int":  "a whole number", "int32": "a whole number", "int64": "a whole number", "Level": "a whole number",
	"float32": "a number", "float64": "a number",
	"duration":    `a duration such as "30s" or "5m"`,
	"quantity":    `a quantity such as "64Ki" or "1Mi"`,
	"ip":          "an IP address",
	"SELECTOR":    "a label selector such as app=gpu-device",
	"stringSlice": "words separated by commas", "float64Slice": "numbers separated by commas", "int32Slice": "whole numbers separated by commas",
	"mapStringBool": "Name=true or Name=false, separated by commas",
}

// valueError returns what a flag takes in place of a value that it does not take.
func valueError(invalid *pflag.InvalidValueError) error {
	flag := invalid.GetFlag()
	kind, known := valueKinds[flag.Value.Type()]
	switch {
	case errors.Is(invalid, strconv.ErrRange):
		return fmt.Errorf("--%s %q: out of range", flag.Name, invalid.GetValue())
	case known:
		return fmt.Errorf("--%s %q: write %s", flag.Name, invalid.GetValue(), kind)
	}
	return fmt.Errorf("--%s %q: %w", flag.Name, invalid.GetValue(), invalid.Unwrap())
}

// Words makes a flag complete from a list of words, one that takes several
// separated by commas word by word.
func Words(cmd *cobra.Command, flag string, words ...string) {
	complete := cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	if cmd.Flag(flag).Value.Type() == "stringSlice" {
		complete = func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return nextWords(typed, words), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
	}
	Complete(cmd, flag, complete)
}

// nextWords returns what a list that is being typed can become: its complete words
// with each word that it lacks.
func nextWords(typed string, words []string) []string {
	given := strings.Split(typed, ",")
	given = given[:len(given)-1]
	var lists []string
	for _, w := range words {
		if !slices.Contains(given, w) {
			lists = append(lists, strings.Join(append(slices.Clone(given), w), ","))
		}
	}
	return lists
}

// Complete sets what a flag is completed from.
func Complete(cmd *cobra.Command, flag string, from cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, from); err != nil {
		panic(err) // the flag does not exist: a mistake that any test finds
	}
}

// OneOf checks that a flag has one of the words it may have.
func OneOf(flag, value string, words ...string) error {
	if slices.Contains(words, value) {
		return nil
	}
	err := fmt.Errorf("--%s %q: write %s", flag, value, quotedList(words))
	if near := similar.Words(value, words); len(near) > 0 {
		return fmt.Errorf("%w; did you mean %q?", err, near[0])
	}
	return err
}

// quotedList quotes words and joins them with commas and "or".
func quotedList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w)
	}
	last := len(quoted) - 1
	if last < 1 {
		return strings.Join(quoted, "")
	}
	return strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}
