package sqlstore

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/truewindow/ratelimit/driver"
)

// sqlState returns the SQLSTATE of an error of PostgreSQL, which both of its drivers show by this
// method, or "".
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

var mySQLError = regexp.MustCompile(`\bError (\d{4,5})\b`)

// mySQLCode returns the number of an error of MySQL, which its driver writes first, or "".
func mySQLCode(err error) string {
	if found := mySQLError.FindStringSubmatch(err.Error()); found != nil {
		return found[1]
	}
	return ""
}

// code returns the code of an error in parentheses, or "".
func code(err error) string {
	if state := sqlState(err); state != "" {
		return " (SQLSTATE " + state + ")"
	} else if number := mySQLCode(err); number != "" {
		return " (error " + number + ")"
	}
	return ""
}

// isBusy reports whether SQLite says that another has locked the file. Its drivers have no type in
// common.
func isBusy(err error) bool {
	text := err.Error()
	return strings.Contains(text, "SQLITE_BUSY") || strings.Contains(text, "database is locked")
}

// isDenied reports whether the database refuses the user.
func isDenied(err error) bool {
	switch sqlState(err) {
	case "28000", "28P01", "42501": // authorization, password, privilege
		return true
	}
	switch mySQLCode(err) {
	case "1044", "1045", "1142", "1227", "1370", "1698":
		return true
	}
	return false
}

func contended(err error) error { return fmt.Errorf("%w: %w", driver.ErrContended, err) }

// notSaved says of an error of a commit that nothing was saved.
func notSaved(err error) error { return fmt.Errorf("%w: %w", driver.ErrUnavailable, err) }
