package yamlfile

import (
	"strings"
)

// Suggest returns ": did you mean …?" with the name of known that is nearest to a misspelt one,
// or an empty text if none is near.
func Suggest(name string, known []string) string {
	best, least := "", len(name)/2+1
	for _, k := range known {
		if d := Distance(name, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// SuggestKey is Suggest for a key of a map. If none is near, it returns all keys.
func SuggestKey(name string, known []string) string {
	if near := Suggest(name, known); near != "" {
		return near
	}
	return "; the keys are " + strings.Join(known, ", ")
}

// Distance returns how many bytes have to be added, removed, replaced or swapped with the next one
// to make b of a. Names of more than 64 bytes are far from all others.
func Distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	// Each row has the distances of one beginning of a to all beginnings of b.
	var rows [3][65]int
	before, last, row := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
