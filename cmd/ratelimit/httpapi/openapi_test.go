package httpapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
)

// An openapiNode is a part of the document.
type openapiNode map[string]any

func readOpenAPI(t *testing.T) openapiNode {
	t.Helper()
	s := newScene(t)
	status, header, text := call(t, s.api, request(http.MethodGet, "/v1/openapi.yaml", ""))
	if status != http.StatusOK || header.Get("Content-Type") != "application/yaml" {
		t.Fatalf("%d %v", status, header)
	}
	var doc openapiNode
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// at returns the node at a path of names, and follows references.
func (doc openapiNode) at(t *testing.T, node openapiNode, path ...string) openapiNode {
	t.Helper()
	for _, name := range path {
		next, ok := node[name].(openapiNode)
		if !ok {
			t.Fatalf("there is no %s of %v in %v", name, path, node)
		}
		node = doc.resolve(t, next)
	}
	return node
}

func (doc openapiNode) resolve(t *testing.T, node openapiNode) openapiNode {
	t.Helper()
	if ref, ok := node["$ref"].(string); ok {
		path := strings.Split(strings.TrimPrefix(ref, "#/"), "/")
		return doc.at(t, doc, path...)
	}
	return node
}

// properties returns the names of the properties of a schema.
func (doc openapiNode) properties(t *testing.T, schema openapiNode) (names []string) {
	t.Helper()
	if all, ok := schema["allOf"].([]any); ok {
		for _, part := range all {
			names = append(names, doc.properties(t, doc.resolve(t, part.(openapiNode)))...)
		}
	}
	names = slices.AppendSeq(names, maps.Keys(doc.at(t, schema, "properties")))
	slices.Sort(names)
	return names
}

var quoted = regexp.MustCompile(`"(\w+)"`)

// TestOpenAPI: the document has the paths, the rights and the fields of bodies that the handlers
// have.
func TestOpenAPI(t *testing.T) {
	doc := readOpenAPI(t)
	doc.at(t, doc, "components", "responses", "problem", "headers", "Retry-After")
	paths := doc.at(t, doc, "paths")
	for path := range rightOf {
		if paths[path] == nil {
			t.Errorf("%s is not in the document", path)
		}
	}
	for path := range paths {
		if _, ok := rightOf[path]; !ok && path != MetricsPath {
			t.Errorf("%s is in the document only", path)
		}
		for method := range doc.at(t, paths, path) {
			operation := doc.at(t, paths, path, method)
			security, _ := operation["security"].([]any)
			schemes := map[access.Rights]int{access.ToRead: 3, access.ToWrite: 1} // of others none
			if len(security) != schemes[Needs(path)] {
				t.Errorf("%s has the security %v", path, security)
			}
			if operation["requestBody"] == nil {
				continue
			}
			schema := doc.at(t, operation, "requestBody", "content", "application/json", "schema")
			_, _, answer := newScene(t).request(strings.ToUpper(method), path, `{"?":1}`)
			var got []string // the answer to an unknown field names those that are known
			for _, name := range quoted.FindAllStringSubmatch(answer["detail"].(string), -1) {
				got = append(got, name[1])
			}
			slices.Sort(got)
			if want := doc.properties(t, schema); !slices.Equal(got, want) {
				t.Errorf("%s %s has the fields %v, and in the document %v", method, path, got, want)
			}
		}
	}
}

// TestOpenAPIAnswers: the fields of answers are those of the document.
func TestOpenAPIAnswers(t *testing.T) {
	doc := readOpenAPI(t)
	s := newScene(t)
	s.api = flagsAPI(t, testFlags(), s.store)
	var err error
	if s.api.top, err = NewTopKeys(1, false, time.Now); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ method, path, body string }{
		{"post", "/v1/decide", hold("tokens")},
		{"post", "/v1/decide", `{"key":"secret-key","n":3}`},
		{"post", "/v1/decide", `{"descriptor":{"key":"secret-key"}}`},
		{"post", "/v1/decide", `{}`},
		{"post", "/v1/peek", of("tokens")},
		{"post", "/v1/peek", `{"descriptor":{"key":"secret-key"}}`},
		{"post", "/v1/renew", `{"id":"$1"}`},
		{"post", "/v1/settle", `{"id":"$1"}`},
		{"post", "/v1/settle", `{"id":"$1","used":1}`},
		{"post", "/v1/force", one("tokens", `"n":1`)},
		{"post", "/v1/block", one("blocked", `"for_ms":1`)},
		{"post", "/v1/reset", one("blocked", "")},
		{"post", "/v1/explain", `{"descriptor":{"key":"user:42"}}`},
		{"get", "/v1/check", ""},
		{"get", "/v1/top-keys", ""},
	} {
		for i, id := range s.ids {
			tt.body = strings.ReplaceAll(tt.body, "$"+strconv.Itoa(i+1), id)
		}
		method := strings.ToUpper(tt.method)
		status, header, text := call(t, s.api, request(method, tt.path, tt.body))
		responses := doc.at(t, doc, "paths", tt.path, tt.method, "responses")
		code := strconv.Itoa(status)
		if responses[code] == nil {
			code = code[:1] + "XX"
		}
		if text == "" {
			doc.at(t, responses, code)
			continue
		}
		schema := doc.at(t, responses, code, "content", header.Get("Content-Type"), "schema")
		var answer map[string]any
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatal(err)
		}
		if id, ok := answer["id"].(string); ok {
			s.ids = append(s.ids, id)
		}
		known := doc.properties(t, schema)
		for name := range answer {
			if !slices.Contains(known, name) {
				t.Errorf("%s %s: %d has %s, and the document %v",
					tt.path, tt.body, status, name, known)
			}
		}
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := answer[name.(string)]; !ok {
				t.Errorf("%s %s: %d has no %s", tt.path, tt.body, status, name)
			}
		}
	}
}
