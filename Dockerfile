# The gateway as a container image; docs/image.md says how to build, pin and run it.
#
# Both stages are of one base, so that the environment which the first one fills finds the same
# interpreter in the second. Any base with Python 3.11 or later, its venv and ensurepip, glibc and CA
# certificates will do; give one with its digest to have the same image tomorrow.
ARG BASE=docker.io/library/python:3.13-slim-trixie

FROM ${BASE} AS build
# Extras of setup.cfg: "workflow" (Temporal), or nothing, which halves what lies above the base.
ARG EXTRAS=workflow
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# Two environments: what installs does not come along.
RUN python3 -m venv /opt/pip && python3 -m venv --without-pip /opt/gateway
COPY docker /src/docker
# A mirror or an authority of one's own comes as a secret: neither the image nor its history bears it.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.pem,target=/run/secrets/ca.pem \
    /opt/pip/bin/pip install --require-hashes -r /src/docker/build.txt && \
    /opt/pip/bin/pip --python /opt/gateway/bin/python install \
        --require-hashes --only-binary :all: --no-compile \
        -r "/src/docker/requirements${EXTRAS:+-$EXTRAS}.txt"
COPY . /src
# `pip check` is where a lock that does not satisfy setup.cfg ends the build.
RUN /opt/pip/bin/pip wheel --no-index --no-build-isolation --no-deps --wheel-dir /src/dist /src && \
    /opt/pip/bin/pip --python /opt/gateway/bin/python install \
        --no-index --no-deps --no-compile /src/dist/*.whl && \
    /opt/pip/bin/pip --python /opt/gateway/bin/python check
# Tests of other packages are of no use here. Bytecode that is not held against its source's time
# stays valid whatever becomes of the files' times, and is the same in every build.
RUN find /opt/gateway/lib -depth -type d \( -name test -o -name tests \) -exec rm -r {} + && \
    PYTHONHASHSEED=0 /opt/gateway/bin/python -m compileall -q \
        --invalidation-mode unchecked-hash /opt/gateway/lib
# twistd's cache of plugins is written now: later nobody may. It is believed while it is younger than
# each of them by a second or more, for layers know no less. So the plugins are made as old as can be,
# and no builder may be told to give all files one time (buildah's --timestamp): here they have it.
ARG SOURCE_DATE_EPOCH=315532800
RUN echo 'gateway:x:10001:10001::/nonexistent:/usr/sbin/nologin' >>/etc/passwd && \
    echo 'gateway:x:10001:' >>/etc/group && \
    PYTHONDONTWRITEBYTECODE=1 /opt/gateway/bin/twistd --help >/dev/null && \
    find /opt/gateway /etc/passwd /etc/group -exec touch -h -d "@${SOURCE_DATE_EPOCH}" {} + && \
    touch -d @0 /opt/gateway/lib/python3.*/site-packages/twisted/plugins/*.py

FROM ${BASE}
ENV PATH=/opt/gateway/bin:$PATH \
    GATEWAY_CONFIG=/etc/llm-gateway/config.yaml \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    MALLOC_ARENA_MAX=2
COPY --from=build /etc/passwd /etc/group /etc/
COPY --from=build /opt/gateway /opt/gateway
USER 10001:10001
WORKDIR /
EXPOSE 8080
ENTRYPOINT ["twistd", "-n", "--pidfile=", "llm-gateway"]
# Last, for they change with every commit.
ARG VERSION=unknown
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="twisted-gateway" \
      org.opencontainers.image.description="An LLM and API gateway that admits by the engine's own scheduler gauges" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
