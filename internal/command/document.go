package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// documentVersion is the version of the JSON documents. Fields may be added to a
// version, none renamed or removed.
const documentVersion = "daybreak-gpu.io/v1"

// writeDocument prints the document, which begins with its version and kind as
// Kubernetes' objects do.
func writeDocument(out io.Writer, kind string, document any) error {
	var text, indented bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(document); err != nil {
		return err
	}
	object := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,%s`, documentVersion, kind, text.Bytes()[1:])
	if err := json.Indent(&indented, object, "", "  "); err != nil {
		return err
	}
	_, err := indented.WriteTo(out)
	return err
}
