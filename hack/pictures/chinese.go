package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
)

// chinese has the labels of all charts. The setting of a study, in parentheses
// after a title, is translated by setting.
var chinese = map[string]string{
	"GPUs allocated as pods arrive":               "Pod 到达过程中的 GPU 分配率",
	"requested by all pods so far, % of all GPUs": "累计申请量（占全部 GPU 的 %）",
	"allocated, % of all GPUs":                    "已分配（占全部 GPU 的 %）",
	"4-GPU jobs with all GPUs in one zone":        "4 GPU 作业中全部 GPU 位于同一互联域的比例",
	"share of the jobs, %":                        "占此类作业的比例（%）",
	"Wait of 8-GPU jobs":                          "8 GPU 作业的等待时间",
	"mean wait, in mean job durations":            "平均等待时间（以作业平均运行时间为单位）",
	"load, fraction of all GPUs":                  "负载（占全部 GPU 的比例）",
	"Scheduler CPU time per pod with one slice":   "调度器为每个单切片 Pod 消耗的 CPU 时间",
	"nodes with eight GPUs":                       "节点数（每个节点 8 张 GPU）",
	"milliseconds":                                "毫秒",
	"plain kube-scheduler":                        "原版 kube-scheduler",
}

var (
	setting = regexp.MustCompile(`^(.*) \(zones (\S*), mix (\S*)\)$`)
	// untranslated are ticks of the axes and names of policies.
	untranslated = regexp.MustCompile(`^(-?[0-9.]+|[a-z]+(-[a-z]+)*)$`)
	text         = regexp.MustCompile(`(<text x=")([0-9.]+)(" [^>]*font-size:)([0-9.]+)(px)(">)([^<]*)(</text>)`)
)

// translate returns the Chinese of a label.
func translate(label string) (string, error) {
	if zh, ok := chinese[label]; ok {
		return zh, nil
	}
	if m := setting.FindStringSubmatch(label); len(m) > 0 && chinese[m[1]] != "" {
		return fmt.Sprintf("%s（互联域 %s，作业构成 %s）", chinese[m[1]], m[2], m[3]), nil
	}
	if untranslated.MatchString(label) {
		return label, nil
	}
	return "", fmt.Errorf("no translation of the label %q", label)
}

// relabel returns the picture with other labels. Those in the legend, which is on
// the right, begin where they began; all others keep their centre.
func relabel(svg []byte, translate func(string) (string, error)) ([]byte, error) {
	fonts := font.NewCache(liberation.Collection())
	var failed error
	out := text.ReplaceAllFunc(svg, func(element []byte) []byte {
		m := text.FindSubmatch(element)
		old := string(m[7])
		label, err := translate(old)
		if err != nil {
			failed = err
		}
		if err != nil || label == old {
			return element
		}
		x, _ := strconv.ParseFloat(string(m[2]), 64)
		size, _ := strconv.ParseFloat(string(m[4]), 64)
		anchor := ""
		if x < legendAt {
			face := fonts.Lookup(font.Font{Typeface: "Liberation", Variant: "Sans"}, font.Length(size))
			x += float64(face.Width(old)) / 2
			anchor = ";text-anchor:middle"
		}
		return fmt.Appendf(nil, "%s%.5g%s%s%s%s%s%s%s", m[1], x, m[3], m[4], m[5], anchor, m[6], label, m[8])
	})
	return out, failed
}

// writeChinese writes the Chinese picture next to a chart.
func writeChinese(file string) error {
	svg, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	zh, err := relabel(svg, translate)
	if err != nil {
		return err
	}
	if bytes.Equal(zh, svg) {
		return fmt.Errorf("%s has no labels to translate", filepath.Base(file))
	}
	return os.WriteFile(strings.TrimSuffix(file, ".svg")+"-zh.svg", zh, 0o644)
}
