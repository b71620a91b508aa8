// Package fieldstest checks the fields that package headers writes and reads against another
// implementation of Structured Fields.
//
// It has only tests. They are here and not in package headers, so that the other implementation
// stays out of the go.sum of programs that import headers.
package fieldstest
