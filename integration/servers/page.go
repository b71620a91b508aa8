package servers

import (
	"bytes"
	"fmt"
	"os"
	"slices"
)

// WriteTable replaces the text on a page between the marks of a table, which contain the name and
// the command that writes it.
func WriteTable(path, name, command, text string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- %s: written by %s -->\n", name, command),
		fmt.Sprintf("<!-- end of %s -->\n", name)
	before, rest, ok1 := bytes.Cut(page, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok1 || !ok2 {
		return fmt.Errorf("%s lacks the marks of the table %s", path, name)
	}
	return os.WriteFile(path, slices.Concat(before, []byte(begin+"\n"+text+"\n"+end), after), 0o644)
}
