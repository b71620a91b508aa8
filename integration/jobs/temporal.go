package jobs

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/truewindow/ratelimit/edge"
)

// Temporal calls f in an activity. The error of a refused call is for Execute.
func (l *Limits) Temporal(
	ctx context.Context, tenant string, f func(context.Context) error,
) error {
	claims := l.Claims(tenant, activity.GetInfo(ctx).TaskQueue)
	err := edge.Do(ctx, claims, edge.Options{}, f)
	if wait, later := edge.RetryAfter(err); later {
		return temporal.NewApplicationErrorWithOptions(err.Error(), "Refused",
			temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{wait},
				Category: temporal.ApplicationErrorCategoryBenign})
	}
	return err
}

// Execute executes an activity in a workflow, and again after each time that a refusal says.
func Execute(ctx workflow.Context, result, f any, args ...any) error {
	for {
		err := workflow.ExecuteActivity(ctx, f, args...).Get(ctx, result)
		var refused *temporal.ApplicationError
		var wait time.Duration
		if !errors.As(err, &refused) || refused.Type() != "Refused" ||
			refused.Details(&wait) != nil {
			return err
		}
		if err := workflow.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}
