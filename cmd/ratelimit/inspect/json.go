package inspect

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// problem is a rules.Problem in JSON.
type problem struct {
	File   string `json:"file"`
	Line   int    `json:"line"`   // from 1, or 0 if it is the whole file
	Column int    `json:"column"` // from 1, or 0 if it is the whole file
	Text   string `json:"text"`
}

// problemsOf returns the problems of an error, which are not nil. An error of another type is one
// problem of the file.
func problemsOf(path string, err error) []problem {
	var problems rules.Problems
	switch {
	case err == nil:
		return []problem{}
	case errors.As(err, &problems):
		return inJSON(problems)
	default:
		return []problem{{File: path, Text: err.Error()}}
	}
}

func inJSON(problems rules.Problems) []problem {
	list := []problem{}
	for _, p := range problems {
		list = append(list, problem{p.At.File, p.At.Line, p.At.Column, p.Text})
	}
	return list
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
