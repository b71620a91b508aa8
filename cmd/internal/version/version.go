// Package version tells the version of the program.
package version

import (
	"cmp"
	"runtime/debug"
)

// The linker sets these, by -X, in a build that has no repository.
var linkedVersion, linkedCommit string

// String returns the version of the program and, if it is known, the commit.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	return versionOf(linkedVersion, linkedCommit, info)
}

// versionOf returns the version and the commit, from info where they are empty.
func versionOf(version, commit string, info *debug.BuildInfo) string {
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			commit = cmp.Or(commit, setting.Value)
		}
	}
	version = cmp.Or(version, info.Main.Version, "(devel)")
	if commit == "" {
		return version
	}
	return version + " commit " + commit
}
