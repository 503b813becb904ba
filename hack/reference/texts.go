package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// chineseFile has the Chinese texts of the dashboard.
const chineseFile = "internal/manager/dashboard/assets/strings/zh.js"

// writeChinese writes what codes and rules mean in Chinese, as the dashboard
// shows it.
func writeChinese(p *page) error {
	source, err := os.ReadFile(chineseFile)
	if err != nil {
		return err
	}
	var texts map[string]string
	object := bytes.TrimSuffix(bytes.TrimSpace(bytes.TrimPrefix(source, []byte("export default "))), []byte(";"))
	if err := json.Unmarshal(object, &texts); err != nil {
		return fmt.Errorf("%s: %w", chineseFile, err)
	}
	var codes, exclusions, rules []string
	for _, c := range place.Codes() {
		codes = append(codes, c.String())
	}
	for _, x := range place.Exclusions() {
		exclusions = append(exclusions, x.String())
	}
	for _, r := range append(audit.Violations(), audit.Notes()...) {
		rules = append(rules, string(r))
	}
	p.begin("拒绝码与审计规则的中文含义", chineseFile, "与控制台显示的文字相同。数值与处理方法见[拒绝码与审计规则（英文）](refusals.md)。")
	for _, part := range []struct {
		title, prefix string
		names         []string
	}{{"拒绝码", "code.", codes}, {"NodeExcluded 的原因", "exclusion.", exclusions}, {"审计规则", "rule.", rules}} {
		var rows [][]string
		for _, name := range part.names {
			text := texts[part.prefix+name]
			if text == "" {
				return fmt.Errorf("%s has no text for %s", chineseFile, part.prefix+name)
			}
			rows = append(rows, []string{code(name), text})
		}
		p.section(part.title, "")
		p.table([]string{"名称", "含义"}, rows)
	}
	return nil
}

// writeCodes writes the table of refusal codes for the dashboard, in English.
func writeCodes(path string) error {
	type row struct {
		Text  string     `json:"text"`
		Unit  place.Unit `json:"unit,omitempty"`
		Aside int        `json:"aside,omitempty"`
	}
	var b bytes.Buffer
	b.WriteString("// Written by hack/reference from " + codesFile + ". Change that, then run make generate.\nexport default {\n")
	for _, c := range place.Codes() {
		d := c.Description()
		text, err := json.Marshal(row{strings.ToUpper(d.Reason[:1]) + d.Reason[1:], d.Unit, d.Aside})
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "  %q: %s,\n", d.Name, text)
	}
	b.WriteString("};\n")
	return os.WriteFile(path, b.Bytes(), 0o644)
}
