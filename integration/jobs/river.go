package jobs

import (
	"context"
	"encoding/json"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/truewindow/ratelimit/edge"
)

// River decides each job before its worker gets it. The job's arguments name its tenant.
func (l *Limits) River() rivertype.WorkerMiddleware {
	return river.WorkerMiddlewareFunc(func(
		ctx context.Context, job *rivertype.JobRow, work func(context.Context) error,
	) error {
		var args struct{ Tenant string }
		if err := json.Unmarshal(job.EncodedArgs, &args); err != nil {
			return river.JobCancel(err)
		}
		err := edge.Do(ctx, l.Claims(args.Tenant, job.Queue), edge.Options{}, work)
		if wait, later := edge.RetryAfter(err); later {
			return river.JobSnooze(wait)
		}
		return err
	})
}
