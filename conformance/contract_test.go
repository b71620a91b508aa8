package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// elsewhere are the beginnings of sentences of the contract that cannot be tested through a store.
var elsewhere = []string{
	"A Store keeps algorithm state by key",
	"Package conformance tests every rule",
	"A store that wraps another",      // of decorators, which the root package's tests have
	"Package layer has such stores",   // which says where they are
	"One from SourceOpen was made by", // which limiters return
	"Take decides one demand",         // what a take is: op/take
	"Step decides d on a state",       // what Step is
	"d.Key is ignored",                // of algorithms alone
	"An empty state is a key without", // every first operation on a key
	"Allowed reports whether",         // every case
	"A decision from SourceLocal is",  // of package layer
	"From SourceLocal its Max",        // of package layer
	"For an admission of SourceLocal", // of package layer
	"One from SourceLease has",        // of package layer
	"If it is a refusal, its",         // of package layer
	"It may stand beside results",     // of package layer
	"It is the contract for authors",  // which says who reads it
	"After an error out holds no",     // which binds callers
	"An algorithm that keeps no",      // of algorithms alone
	"That is at most one Window",      // of algorithms alone: how long a RetryAfter can be
	"It is random, not 0",             // which binds callers
	"It has no takes and forces",      // which binds callers
	"A Holder is an Algorithm with",   // every case of holds
	"Held is an algorithm with holds", // every case of holds
	"Create one with [Budget]",
	"Values are immutable and",    // algorithm/values
	"A decision takes the same",   // of algorithms alone
	"Holds of one length have at", // of algorithms alone
}

// TestEverySentenceIsACase reads the contract of a store: a rule must quote every sentence.
func TestEverySentenceIsACase(t *testing.T) {
	var said strings.Builder
	for _, r := range rules() {
		said.WriteString(squeeze(r.says) + "\n")
	}
	quoted := said.String()
	sentences := 0
	for _, doc := range contract(t) {
		for _, sentence := range split(doc) {
			sentences++
			told := strings.Contains(quoted, sentence)
			for _, start := range elsewhere {
				told = told || strings.HasPrefix(sentence, start)
			}
			if !told {
				t.Errorf("no rule quotes %q", sentence)
			}
		}
	}
	if sentences < 40 {
		t.Errorf("the contract has %d sentences, this test does not find them all", sentences)
	}
}

// contract returns the doc comments that bind a store.
func contract(t *testing.T) (docs []string) {
	for _, name := range []string{"../driver/store.go", "../driver/demand.go",
		"../driver/result.go", "../algorithm/held.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, binding(file)...)
	}
	return docs
}

// binding returns the doc comments of a file that bind a store.
func binding(file *ast.File) (docs []string) {
	add := func(groups ...*ast.CommentGroup) {
		for _, g := range groups {
			docs = append(docs, g.Text())
		}
	}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				if len(spec.Names) == 1 &&
					slices.Contains(strings.Fields("OpTake OpPeek OpForce OpReset OpHold OpSettle"),
						spec.Names[0].Name) {
					add(spec.Doc)
				}
			case *ast.TypeSpec:
				switch typ := spec.Type.(type) {
				case *ast.InterfaceType:
					whole := spec.Name.Name == "Store" || spec.Name.Name == "Holder"
					if whole {
						add(gen.Doc)
					}
					for _, m := range typ.Methods.List {
						if whole || len(m.Names) > 0 && m.Names[0].Name == "Step" {
							add(m.Doc)
						}
					}
				case *ast.StructType:
					switch spec.Name.Name {
					case "Held":
						add(gen.Doc)
					case "Result", "Demand":
						for _, f := range typ.Fields.List {
							add(f.Doc)
						}
					}
				}
			}
		}
	}
	return docs
}

var end = regexp.MustCompile(`\.\)? `)

var heading = regexp.MustCompile(`(?m)^[A-Z][a-z]+$`)

// split returns the sentences of a doc comment.
func split(doc string) (sentences []string) {
	doc = strings.ReplaceAll(heading.ReplaceAllString(doc, ""), "  - ", " ")
	for _, s := range end.Split(squeeze(doc)+" ", -1) {
		if s = strings.TrimPrefix(s, "("); s != "" {
			sentences = append(sentences, s)
		}
	}
	return sentences
}

var space = regexp.MustCompile(`\s+`)

func squeeze(s string) string { return strings.TrimSpace(space.ReplaceAllString(s, " ")) }
