package daemon

import (
	_ "embed"
	"net/http"
)

// openapiDocument describes all requests (OpenAPI 3.1).
//
//go:embed openapi.yaml
var openapiDocument []byte

func (*api) openapi(w http.ResponseWriter, r *http.Request) {
	if !methodIsOneOf(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openapiDocument)
}
