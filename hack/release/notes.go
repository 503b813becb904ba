package main

import (
	"fmt"
	"strings"
)

// section is a version's part of the changelog.
type section struct {
	title string // such as "0.2.0, 2026-11-20"
	text  string // without the title
}

// cutNotes returns the section of a version. Links to files of the repository lead
// to those of the tag.
func cutNotes(changelog, version string) (section, error) {
	want := strings.TrimPrefix(version, "v")
	var found section
	var text strings.Builder
	for line := range strings.Lines(changelog) {
		title, isTitle := strings.CutPrefix(line, "## ")
		switch {
		case isTitle && found.title != "":
			return finish(found, text.String(), version)
		case isTitle:
			title = strings.TrimSpace(title)
			if name, _, _ := strings.Cut(title, ","); name == want {
				found.title = title
			}
		case found.title != "":
			text.WriteString(line)
		}
	}
	if found.title == "" {
		return section{}, fmt.Errorf(`CHANGELOG.md has no section for %s: write one that starts with "## %s, DATE"`, version, want)
	}
	return finish(found, text.String(), version)
}

func finish(s section, text, version string) (section, error) {
	s.text = strings.TrimSpace(text)
	if s.text == "" {
		return section{}, fmt.Errorf("the section for %s in CHANGELOG.md is empty: write what changes for users", version)
	}
	s.text = strings.ReplaceAll(s.text, "](docs/", "]("+repository+"/blob/"+version+"/docs/") + "\n"
	return s, nil
}
