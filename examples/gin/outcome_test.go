package main

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/truewindow/ratelimit/examples/internal/requests"
)

func TestOutcome(t *testing.T) {
	requests.CheckOutcome(t, func(limit func(http.Handler) http.Handler) string {
		router := gin.New()
		router.GET("/:status", middleware(limit), func(c *gin.Context) {
			if c.Param("status") == "401" {
				c.AbortWithStatus(http.StatusUnauthorized)
				return
			}
			c.String(http.StatusOK, "ok")
		})
		return requests.Handler(t, router, nil)
	})
}
