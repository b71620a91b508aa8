// Package examples runs programs that the documents quote, on real servers.
package examples
