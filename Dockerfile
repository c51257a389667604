# One image of one binary, equal to what `make images` makes:
#
#   docker build --build-arg BINARY=sentinel -t fleetloop/sentinel .
#
# tools/release builds the program and writes every file of the image, so this
# says only where the files go and what runs. Nothing of the Go image is left
# in the result: no shell, no library.
ARG BINARY=sentinel

FROM golang:1.26 AS build
ARG BINARY
ENV GOCACHE=/go/cache
WORKDIR /source
COPY . .
# The revision that the program tells is that of .git, which belongs to
# whoever has the source.
RUN git config --global --add safe.directory /source
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go/cache \
    go run ./tools/release -files /files ${BINARY}

FROM scratch AS files
COPY --from=build /files /
USER 65532:65532
WORKDIR /

# An entrypoint takes no variable, so each binary has its own stage.
FROM files AS action-runner
ENTRYPOINT ["/action-runner"]

FROM files AS adapter-runner
ENTRYPOINT ["/adapter-runner"]

FROM files AS cluster-worker
ENTRYPOINT ["/cluster-worker"]

FROM files AS console
ENTRYPOINT ["/console"]

FROM files AS execution-controller
ENTRYPOINT ["/execution-controller"]

FROM files AS fleet-api
ENTRYPOINT ["/fleet-api"]

FROM files AS fleetloop
ENTRYPOINT ["/fleetloop"]

FROM files AS fleetloop-up
ENTRYPOINT ["/fleetloop-up"]

FROM files AS node-fault-controller
ENTRYPOINT ["/node-fault-controller"]

FROM files AS sentinel
ENTRYPOINT ["/sentinel"]

FROM ${BINARY}
