package envoy

import (
	"context"
	"errors"
	"time"

	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
	"github.com/truewindow/ratelimit/driver"
)

// kuadrantService is Kuadrant's RateLimitService, the protocol of limitador. What differs:
//
//   - CheckRateLimit asks whether hits_addend units are free, not whether one is.
//   - An amount above a limit holds the whole limit, and not the half of it.
//   - A hold counts for all calls, not only for other reservations.
//   - The ID of a reservation has all that Commit needs. One that is late is settled too. One that
//     was settled, or that timed out a day ago, charges nothing.
//   - Without a limit that holds units, Reserve is CheckRateLimit, and Commit is Report.
type kuadrantService struct {
	kuadrant.UnimplementedRateLimitServiceServer
	*Service
}

// charge charges units that are spent.
var charge = decision.Options{Force: true, NoInFlight: true}

// CheckRateLimit says whether the units would be admitted.
func (k *kuadrantService) CheckRateLimit(
	ctx context.Context, req *rls.RateLimitRequest,
) (*rls.RateLimitResponse, error) {
	k.counts.calls.Add(1)
	d, err := k.decide(
		decision.Admitting(ctx), req, decision.Options{Peek: true, NoInFlight: true})
	if err != nil {
		return nil, err
	}
	return k.answer(req, d.Parts, d.Allowed), nil
}

// Report charges the units. The code is OK, since they are spent.
func (k *kuadrantService) Report(
	ctx context.Context, req *rls.RateLimitRequest,
) (*rls.RateLimitResponse, error) {
	k.counts.calls.Add(1)
	if !k.mayCharge(ctx) {
		return nil, k.needsToken(ctx)
	}
	d, err := k.spend(ctx, req)
	if err != nil {
		return nil, err
	}
	return k.answer(req, d.Parts, true), nil
}

// spend charges the units of a call, and notes that.
func (k *kuadrantService) spend(
	ctx context.Context, req *rls.RateLimitRequest,
) (decision.Decision, error) {
	d, err := k.decide(ctx, req, charge)
	switch code := status.Code(err); {
	case code == codes.InvalidArgument, code == codes.PermissionDenied: // noted if need be
	case err != nil:
		k.wrote(ctx, "force", nil, code, err)
	default:
		if changes := charged(req, d.Parts); len(changes) > 0 { // else no limit applies
			k.wrote(ctx, "force", changes, code, nil)
		}
	}
	return d, err
}

// Reserve holds an estimate.
func (k *kuadrantService) Reserve(
	ctx context.Context, req *kuadrant.ReserveRequest,
) (*kuadrant.ReserveResponse, error) {
	k.counts.calls.Add(1)
	hold, err := holdOf(req.GetTtl())
	if err != nil {
		return nil, k.invalid(req.GetDomain(), err)
	}
	d, err := k.decide(ctx, unitsOf(req, req.GetAmount()),
		decision.Options{Hold: &hold, Estimate: true})
	if err != nil {
		return nil, err
	}
	return &kuadrant.ReserveResponse{Code: k.code(d.Allowed), ReservationId: d.ID}, nil
}

// holdOf returns how long to hold for a TTL, 0 without one.
func holdOf(ttl *durationpb.Duration) (time.Duration, error) {
	if ttl == nil {
		return 0, nil
	}
	hold := ttl.AsDuration() // the longest one if it does not fit
	if err := ttl.CheckValid(); err != nil || hold < 0 {
		return 0, invalid("the ttl is negative, or no duration")
	}
	return hold, nil
}

// Commit charges what was used in place of what an ID holds. It reports the units if the ID is not
// one, or has a limit that is not in force any more.
func (k *kuadrantService) Commit(
	ctx context.Context, req *kuadrant.CommitRequest,
) (*kuadrant.CommitResponse, error) {
	k.counts.calls.Add(1)
	if req.GetActualAmount() > uint64(driver.MaxUnits) {
		return nil, k.invalid(req.GetDomain(),
			invalid("the actual_amount is above %d", driver.MaxUnits))
	}
	released := false
	held, err := k.config.Decider.Resume(req.GetReservationId())
	switch {
	case err == nil:
		released, err = k.settle(ctx, req, held)
	case !k.mayCharge(ctx):
		err = k.needsToken(ctx)
	default:
		_, err = k.spend(ctx, unitsOf(req, req.GetActualAmount()))
	}
	if err != nil {
		return nil, err
	}
	k.counts.ok.Add(1)
	return &kuadrant.CommitResponse{ReservationReleased: released}, nil
}

// settle reports whether it has settled held, which may have been settled before.
func (k *kuadrantService) settle(
	ctx context.Context, req *kuadrant.CommitRequest, held *ratelimit.Reservation,
) (bool, error) {
	defer func() { _, _ = held.Token() }() // ends its renewals
	var used []ratelimit.Claim
	var changes []audit.Change
	mayUse := true
	for _, c := range held.Claims() {
		change := audit.Change{Limit: c.Limiter.Limits()[0].Name, Key: c.Key}
		mayUse = mayUse && access.From(ctx).MayUse(change.Limit)
		if !c.Limiter.Algorithms()[0].(driver.Holder).InFlight() {
			change.Held = new(c.N)
			c.N = int64(req.GetActualAmount())
			change.Units = new(c.N)
			used = append(used, c)
		}
		changes = append(changes, change)
	}
	if !mayUse {
		return false, k.deny(ctx, codes.PermissionDenied,
			"the credential is limited to other limits than those of the id", changes...)
	}
	within, err := k.mayCharge(ctx), error(nil)
	if !within {
		within, err = k.config.Decider.Within(ctx, req.GetReservationId(), held, used...)
	}
	if err == nil {
		if !within {
			return false, k.needsToken(ctx, changes...)
		}
		err = held.CommitAll(ctx, used...)
	}
	var answer error
	if err != nil && !errors.Is(err, ratelimit.ErrNotHeld) {
		answer = k.fail(ctx, req.GetDomain(), err)
	}
	k.wrote(ctx, "settle", changes, status.Code(answer), err)
	return err == nil, answer
}

// mayCharge reports whether a call may charge more than was held.
func (k *kuadrantService) mayCharge(ctx context.Context) bool {
	return !k.config.SettleWithin || access.From(ctx).May(access.ToWrite)
}

// needsToken returns the error of a call that may not charge.
func (k *kuadrantService) needsToken(ctx context.Context, changes ...audit.Change) error {
	return k.deny(ctx, codes.Unauthenticated, "charging more than was held needs the metadata "+
		"authorization: Bearer TOKEN, with a token that writes", changes...)
}

// unitsOf returns the request of n units of each descriptor of a call.
func unitsOf(call interface {
	GetDomain() string
	GetDescriptors() []*limitv3.RateLimitDescriptor
}, n uint64) *rls.RateLimitRequest {
	req := &rls.RateLimitRequest{Domain: call.GetDomain()}
	for _, d := range call.GetDescriptors() {
		req.Descriptors = append(req.Descriptors, &limitv3.RateLimitDescriptor{
			Entries: d.GetEntries(), Limit: d.GetLimit(), HitsAddend: wrapperspb.UInt64(n)})
	}
	return req
}
