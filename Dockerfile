# docker build --tag rowwise .                              CPU
# docker build --tag rowwise:gpu --build-arg DEVICE=gpu .   with the CUDA libraries; run it with --gpus all
# docker build --tag rowwise:locust --target locust .       the load generator of docker-compose.yml

ARG BASE=python:3.11.14-slim-bookworm

FROM $BASE AS packages
# For `strip`. It stays in this stage.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends binutils && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY scripts/install-image.sh scripts/install-packages.sh scripts/
COPY requirements requirements
ARG DEVICE=cpu
RUN scripts/install-image.sh packages /opt/rowwise "requirements/image-$DEVICE.lock"

FROM packages AS application
WORKDIR /src
COPY . .
RUN scripts/install-image.sh application /opt/rowwise /opt/application

FROM $BASE AS locust
RUN useradd --system --uid 10001 --no-create-home locust
WORKDIR /src
COPY scripts/install-image.sh scripts/install-packages.sh scripts/
COPY requirements requirements
RUN scripts/install-image.sh packages /opt/locust requirements/loadtest.lock
COPY . .
RUN scripts/install-image.sh application /opt/locust
USER 10001
# It makes requests and their answers from the example models, and keeps what it trained for them.
ENV PATH=/opt/locust/bin:$PATH \
    HOME=/tmp \
    TF_CPP_MIN_LOG_LEVEL=2
EXPOSE 8089
ENTRYPOINT ["locust", "--locustfile", "/src/loadtests/locustfile.py"]

FROM $BASE AS server
RUN useradd --system --uid 10001 --no-create-home rowwise \
  && install --directory --owner 10001 --group 10001 /var/lib/rowwise
# Two layers: the packages stay as they are from one release to the next, and are not sent again with each.
COPY --from=packages /opt/rowwise /opt/rowwise
COPY --from=application /opt/application /opt/rowwise
COPY deploy/health_check.py /opt/rowwise/health_check.py
ENV PATH=/opt/rowwise/bin:$PATH \
    HOME=/var/lib/rowwise \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TF_CPP_MIN_LOG_LEVEL=2 \
    ROWWISE_HOST=0.0.0.0 \
    ROWWISE_PORT=8000 \
    ROWWISE_GRPC_PORT=8001 \
    ROWWISE_STORE=/var/lib/rowwise/store
# All that is kept lies here. The rest may be read-only, with a tmpfs on /tmp.
VOLUME /var/lib/rowwise
WORKDIR /var/lib/rowwise
USER 10001
# HTTP and gRPC.
EXPOSE 8000
EXPOSE 8001
# Ready: every active model is loaded and warm. Building the first models may take minutes, which count as starting.
HEALTHCHECK --interval=5s --timeout=5s --start-period=10m --retries=3 \
  CMD ["python", "/opt/rowwise/health_check.py"]
# No shell in between: SIGTERM reaches the server, which then finishes what it has and exits.
STOPSIGNAL SIGTERM
CMD ["rowwise", "serve"]
