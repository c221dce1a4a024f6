# For those who have Docker; "make images" needs none and gives the same contents.
#
#   docker build --target manager -t localhost/storageclient/manager:dev .
#   docker build --target node-agent -t localhost/storageclient/node-agent:dev .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api api
COPY tuning tuning
COPY controllers controllers
COPY agent agent
COPY cmd cmd
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /out/ ./cmd/manager ./cmd/node-agent && mkdir -m 1777 /out/tmp

FROM scratch AS manager
COPY --from=build /out/tmp /tmp
COPY --from=build /out/manager /manager
USER 65532
ENTRYPOINT ["/manager"]

FROM scratch AS node-agent
COPY --from=build /out/tmp /tmp
COPY --from=build /out/node-agent /node-agent
ENTRYPOINT ["/node-agent"]
