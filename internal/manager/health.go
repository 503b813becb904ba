package manager

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// ready says whether the caches are filled: replicas that do not lead are
// ready too, since they serve.
func (m *Manager) ready(req *http.Request) error {
	ctx, cancel := context.WithTimeout(req.Context(), time.Second)
	defer cancel()
	if !m.ctrl.GetCache().WaitForCacheSync(ctx) {
		return errors.New("the caches are not filled yet")
	}
	return nil
}
