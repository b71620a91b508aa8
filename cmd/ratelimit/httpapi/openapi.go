package httpapi

import (
	_ "embed"
	"net/http"
)

// openapiDocument describes all requests (OpenAPI 3.1).
//
//go:embed openapi.yaml
var openapiDocument []byte

func (*API) openapi(w http.ResponseWriter, r *http.Request) {
	if !MethodIsOneOf(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openapiDocument)
}
