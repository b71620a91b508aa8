module github.com/truewindow/ratelimit

go 1.26.0
