// Package mysql opens stores in MySQL and MariaDB databases by URL. Import it for its side effect:
//
//	import _ "github.com/truewindow/ratelimit/backend/mysql"
//	…
//	store, err := backend.Open(ctx, "mysql://user:password@host:3306/database")
//
// The scheme is mysql or mariadb, and the driver github.com/go-sql-driver/mysql. Package
// [github.com/truewindow/ratelimit/backend/sql] is the store. A URL takes the store's
// parameters, see [sqlstore.Register], and:
//
//	tls     true, or skip-verify for a server whose certificate is not checked; default: no TLS
//	tls-ca  PEM file with the authorities' certificates; default: those of the system
package mysql

import (
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"net"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/truewindow/ratelimit/backend"
	sqlstore "github.com/truewindow/ratelimit/backend/sql"
)

func init() {
	sqlstore.Register("mysql", sqlstore.MySQL, open)
	sqlstore.Register("mariadb", sqlstore.MySQL, open)
}

func open(u *backend.URL) (*sql.DB, error) {
	database, more := strings.TrimPrefix(u.Path, "/"), false
	database, _, more = strings.Cut(database, "/")
	switch {
	case len(u.Hosts) != 1:
		return nil, errors.New("it needs one host: write mysql://user:password@host/database")
	case database == "" || more:
		return nil, errors.New("it needs a database: write mysql://user:password@host/database")
	}
	c := mysql.NewConfig()
	c.Net, c.Addr = "tcp", u.Hosts[0]
	if strings.LastIndexByte(c.Addr, ':') <= strings.LastIndexByte(c.Addr, ']') {
		c.Addr += ":3306"
	}
	c.User, c.Passwd, c.DBName = u.Username, u.Password(), database
	c.Logger = &mysql.NopLogger{} // the store returns errors
	setTLS(c, u)
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, errors.New("the driver refuses it")
	}
	return sql.OpenDB(connector), nil
}

func setTLS(c *mysql.Config, u *backend.URL) {
	mode, ok := u.Param("tls")
	file, hasFile := u.Param("tls-ca")
	switch {
	case ok && mode != "true" && mode != "skip-verify":
		u.Invalid("tls", "it is neither true nor skip-verify")
		return
	case hasFile && mode != "true":
		u.Invalid("tls-ca", "it needs tls=true")
		return
	case !ok:
		return
	}
	host, _, _ := net.SplitHostPort(c.Addr)
	c.TLS = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	c.TLS.InsecureSkipVerify = mode == "skip-verify"
	if hasFile {
		c.TLS.RootCAs = x509.NewCertPool()
		if pem, err := os.ReadFile(file); err != nil {
			u.Invalid("tls-ca", "the file cannot be read")
		} else if !c.TLS.RootCAs.AppendCertsFromPEM(pem) {
			u.Invalid("tls-ca", "the file has no certificates in PEM")
		}
	}
}
