# The service: one static program, without anything else but certificate authorities.
#
#   docker build -t ratelimit .
#   docker run --rm -p 8080:8080 ratelimit --limit 10/1m
#
# The version and the commit are those of the repository. Where the context has no .git, set the
# arguments VERSION and COMMIT. GOPROXY is another proxy of Go modules than the default.

FROM --platform=${BUILDPLATFORM:-linux} golang:1.26 AS build
ARG TARGETOS
ARG TARGETARCH
ARG GOPROXY
ARG VERSION
ARG COMMIT
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -o /ratelimit \
    -ldflags "-s -w \
    -X github.com/truewindow/ratelimit/cmd/internal/version.linkedVersion=$VERSION \
    -X github.com/truewindow/ratelimit/cmd/internal/version.linkedCommit=$COMMIT" \
    ./cmd/ratelimit
RUN mkdir -p /var/lib/ratelimit /bin-link && ln -s /ratelimit /bin-link/ratelimit

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /ratelimit /ratelimit
# The command of envoyproxy/ratelimit, which gateways start.
COPY --from=build /bin-link /bin
# For --store sqlite:/var/lib/ratelimit/limits.db, as a volume.
COPY --from=build --chown=65532:65532 /var/lib/ratelimit /var/lib/ratelimit
USER 65532:65532
ENV RATELIMIT_ADDR=:8080
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s CMD ["/ratelimit", "ready"]
ENTRYPOINT ["/ratelimit", "serve"]
