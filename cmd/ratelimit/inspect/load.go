// Package inspect has the commands that read the service's configuration and decide nothing.
package inspect

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// load reads a configuration file and compiles its limits. An error is of type rules.Problems.
func load(path string) (*rules.Set, error) {
	f, err := rules.Read(path)
	if err != nil {
		return nil, err
	}
	return rules.Compile(f.Limits, nil)
}

// problem is a rules.Problem in JSON.
type problem struct {
	File   string `json:"file"`
	Line   int    `json:"line"`   // from 1, or 0 if it is the whole file
	Column int    `json:"column"` // from 1, or 0 if it is the whole file
	Text   string `json:"text"`
}

// problemsOf returns the problems of an error of load. They are not nil.
func problemsOf(err error) []problem {
	list := []problem{}
	var problems rules.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			list = append(list, problem{p.At.File, p.At.Line, p.At.Column, p.Text})
		}
	}
	return list
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
