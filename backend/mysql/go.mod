module github.com/truewindow/ratelimit/backend/mysql

go 1.25.0

require github.com/truewindow/ratelimit v0.1.0

require github.com/go-sql-driver/mysql v1.9.3

require filippo.io/edwards25519 v1.1.0 // indirect
