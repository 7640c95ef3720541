# Two stages: the toolchain of the workspace builds one binary, and a base without a shell carries it.
# The commands that build are those of deploy/image/build, which .ci/image runs without a container engine as well.
# Needs BuildKit (the default builder of Docker since 23.0): docker build -t tidegate .

FROM rust:1.95-bookworm AS build
# cmake builds the compression libraries that Pingora links.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends cmake \
 && rm -rf /var/lib/apt/lists/*
# The image has the toolchain that rust-toolchain.toml names; naming it here keeps rustup from adding components to it.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
COPY Cargo.toml Cargo.lock LICENSE ./
COPY config config
COPY control control
COPY proxy proxy
COPY lite lite
COPY app app
COPY tests tests
COPY bench bench
COPY deploy/image/build deploy/image/build
# `dist` is one fat-LTO unit; `release` builds in a fraction of the time.
ARG PROFILE=dist
# Compiled dependencies stay in the builder's cache, so a change of the sources builds only the workspace.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    PROFILE=$PROFILE deploy/image/build /out

# glibc, libgcc and certificates of authorities; no shell, no package manager. The same Debian release as above.
FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="Tidegate" \
      org.opencontainers.image.description="A Kubernetes edge ingress that never reloads" \
      org.opencontainers.image.url="https://tidegate.io" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/tidegate /tidegate
COPY --from=build /src/LICENSE /LICENSE
# The user `nonroot` of the base, by number, so that runAsNonRoot can be checked.
USER 65532:65532
# HTTP, HTTPS, health and metrics. The debug address is on loopback and needs no port.
EXPOSE 8080 8443 9180
ENTRYPOINT ["/tidegate"]
CMD ["run"]
