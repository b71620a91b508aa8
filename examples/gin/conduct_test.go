package main

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/truewindow/ratelimit/internal/testkit/adaptertest"
)

func TestConduct(t *testing.T) {
	adaptertest.Run(t, adaptertest.HTTP(func(
		t testing.TB, limit func(http.Handler) http.Handler, work func(context.Context) error,
	) string {
		router := gin.New()
		router.Use(gin.RecoveryWithWriter(io.Discard))
		router.GET("/", middleware(limit), func(c *gin.Context) {
			if work(c.Request.Context()) != nil {
				c.AbortWithStatus(adaptertest.StatusFailed)
			}
		})
		return adaptertest.ServeHTTP(t, router)
	}, nil))
}
