package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/view"
)

// documentVersion is the version of the JSON documents. Fields may be added to a
// version, none renamed or removed.
const documentVersion = "daybreak-gpu.io/v1"

// documentHead is what every JSON document begins with, as Kubernetes' objects do.
type documentHead struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// kindOf returns the kind of a command's document.
func kindOf(document any) (string, error) {
	switch document.(type) {
	case *view.Placements:
		return "Placements", nil
	case *view.Explanations:
		return "Explanations", nil
	case *view.Status:
		return "Status", nil
	case *view.Namespaces:
		return "Namespaces", nil
	case *audit.Report:
		return "Audit", nil
	}
	return "", fmt.Errorf("a document of type %T has no kind", document)
}

// writeDocument prints the document with its version and kind.
func writeDocument(out io.Writer, document any) error {
	kind, err := kindOf(document)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, part := range []any{documentHead{documentVersion, kind}, document} {
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(part); err != nil {
			return err
		}
	}
	// The end of the one object and the beginning of the other become a comma.
	joined := bytes.Replace(text.Bytes(), []byte("}\n{"), []byte(","), 1)
	text = bytes.Buffer{}
	if err := json.Indent(&text, joined, "", "  "); err != nil {
		return err
	}
	_, err = text.WriteTo(out)
	return err
}
