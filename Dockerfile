# SPDX-License-Identifier: Apache-2.0
# For those who have a container engine; `make images` makes the same images without one.
#   docker build --target calico -t calico/calico:0.1.0 .
#   docker build --target etcd -t calico/etcd:0.1.0 .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETARCH
ARG VERSION=0.1.0
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    make images VERSION="$VERSION" IMAGEFLAGS="-arch $TARGETARCH" && \
    mv "bin/images/rootfs/calico-$TARGETARCH" /calico && mv "bin/images/rootfs/etcd-$TARGETARCH" /etcd

FROM scratch AS base
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY LICENSE /
ENV PATH=/
WORKDIR /
# The agent and etcd need 0: the manifests say so.
USER 65532:65532

FROM base AS etcd
COPY --from=build /etcd/ /
CMD ["/etcd"]

FROM base AS calico
COPY --from=build /calico/ /
CMD ["/calico-node"]
