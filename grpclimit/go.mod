module github.com/truewindow/ratelimit/grpclimit

go 1.25.0

require (
	github.com/truewindow/ratelimit v0.1.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250528174236-200df99c418a
	google.golang.org/grpc v1.63.0
	google.golang.org/protobuf v1.36.6
)

require (
	golang.org/x/net v0.21.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.14.0 // indirect
)
