// Package fieldstest checks the fields that package headers writes and reads with another
// implementation of Structured Fields.
//
// It has only tests. They are here and not beside the package, so that the implementation stays out
// of the go.sum of programs that import it.
package fieldstest
