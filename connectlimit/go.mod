module github.com/truewindow/ratelimit/connectlimit

go 1.26.0

require (
	connectrpc.com/connect v1.21.1
	connectrpc.com/connect/v2 v2.0.2
	github.com/truewindow/ratelimit v0.1.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250528174236-200df99c418a
	google.golang.org/protobuf v1.36.11
)
