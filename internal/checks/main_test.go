// Package checks tests the pages and the dependencies of the module.
package checks

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // the root of the module
		panic(err)
	}
	os.Exit(m.Run())
}
