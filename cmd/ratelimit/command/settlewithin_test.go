package command

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
)

// TestReportWithinHold: with --settle-within-hold and without a token, a Report charges nothing,
// and a Commit at most what is held.
func TestReportWithinHold(t *testing.T) {
	file := apitest.ConfigFile(t,
		"limits:\n  - {name: tokens, key: [key], max: 100/1h, holds: 1m}\n")
	_, log, _ := start(t, "--config="+file, "--grpc-addr=127.0.0.1:0", "--settle-within-hold")
	reports := kuadrant.NewRateLimitServiceClient(dialEnvoy(t, log))
	for _, tt := range []struct {
		authorization string
		want          codes.Code
	}{
		{"", codes.Unauthenticated},
		{"Bearer ", codes.Unauthenticated},
		{apitest.Token, codes.Unauthenticated},
		{"Bearer x" + apitest.Token, codes.Unauthenticated},
		{"Basic " + apitest.Token, codes.Unauthenticated},
		{"bearer " + apitest.Token, codes.OK},
	} {
		ctx := t.Context()
		if tt.authorization != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", tt.authorization)
		}
		key := "with " + tt.authorization
		left := uint32(100)
		check := func(what string, err error, charged uint32) {
			t.Helper()
			if status.Code(err) != tt.want {
				t.Errorf("%s %s: %v, want %v", what, key, err, tt.want)
			}
			if tt.want == codes.OK {
				left -= charged
			}
			resp, err := reports.CheckRateLimit(t.Context(), keyCall(key, 1))
			if err != nil || resp.Statuses[0].LimitRemaining != left {
				t.Errorf("after %s %s: %v, %v, want %d left", what, key, resp, err, left)
			}
		}
		_, err := reports.Report(ctx, keyCall(key, 9))
		check("Report", err, 9)
		commit := &kuadrant.CommitRequest{Domain: "any",
			Descriptors: keyCall(key, 1).Descriptors, ActualAmount: 8}
		_, err = reports.Commit(ctx, commit)
		check("Commit without an id", err, 8)
		held, err := reports.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "any",
			Descriptors: commit.Descriptors, Amount: 10})
		if err != nil {
			t.Fatal(err)
		}
		left -= 10
		commit.ReservationId, commit.ActualAmount = apitest.Forge(t, held.ReservationId, `"n":10`,
			`"n":11`), 11
		_, err = reports.Commit(ctx, commit)
		check("Commit of more", err, 1)
		if tt.want == codes.OK {
			continue
		}
		commit.ActualAmount = 10
		done, err := reports.Commit(t.Context(), commit)
		if err != nil || !done.ReservationReleased {
			t.Errorf("Commit of what is held: %v, %v", done, err)
		}
		if done, err = reports.Commit(t.Context(), commit); err != nil || done.ReservationReleased {
			t.Errorf("the Commit again: %v, %v", done, err)
		}
	}
}

// TestSettleWithinHoldNeedsTokens: the flag has no meaning without tokens.
func TestSettleWithinHoldNeedsTokens(t *testing.T) {
	var stderr strings.Builder
	code := run(t.Context(), []string{"serve", "--settle-within-hold"}, os.Stdout, &stderr)
	if code != 2 || !strings.Contains(stderr.String(), "needs --write-token-file") {
		t.Errorf("code %d: %s", code, &stderr)
	}
}
