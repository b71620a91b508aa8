// Package examples runs programs that the documentation quotes, on real servers.
package examples
