"""Rowwise on a Ray cluster: replicas of the engine behind Ray Serve's proxy and autoscaler, over one store.

    python deploy/ray_serve.py --store s3://models/team --replicas 2
    python deploy/ray_serve.py --store /mnt/models --follow-store --max-replicas 8 --haproxy

starts a cluster of this machine, or joins the one that RAY_ADDRESS names, and serves until SIGTERM or Ctrl-C. A cluster
that is joined must have been started in the same environment, which --environment prints: docs/ray_serve.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--environment", action="store_true", help="print what `ray start` needs to find, and end")
    parser.add_argument("--store", help="s3://BUCKET/PREFIX, or a directory with --follow-store")
    parser.add_argument("--follow-store", action="store_true", help="the directory is another server's, and followed")
    parser.add_argument("--follow-s", type=float, default=5.0, help="seconds between looks at the store (5)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1: this machine only)")
    parser.add_argument("--port", type=int, default=8000, help="HTTP port (8000)")
    parser.add_argument("--replicas", type=int, help="how many; left out: as many as the load asks for")
    parser.add_argument("--min-replicas", type=int, default=1)
    parser.add_argument("--max-replicas", type=int, default=4)
    parser.add_argument("--target-rows", type=float, default=32.0, help="rows that a replica should hold (32)")
    parser.add_argument("--upscale-delay-s", type=float, default=10.0)
    parser.add_argument("--downscale-delay-s", type=float, default=300.0)
    parser.add_argument("--num-cpus", type=float, default=1.0, help="cores that Ray counts for a replica (1)")
    parser.add_argument("--grace-s", type=float, default=30.0, help="seconds that a replica has to finish (30)")
    parser.add_argument("--haproxy", action="store_true", help="HAProxy in front, in place of Ray Serve's own proxy")
    parser.add_argument("--cluster-cpus", type=int, help="cores of a cluster that is started here (all)")
    options = parser.parse_args()
    from server.replica import build, ray_environment

    if options.environment:
        for name, value in ray_environment(haproxy=options.haproxy).items():
            print(f"export {name}='{value}'")
        return 0
    if options.store is None:
        parser.error("--store is missing")
    # Ray Serve's processes read it when they start, so before the cluster does.
    for name, value in ray_environment(haproxy=options.haproxy).items():
        os.environ.setdefault(name, value)

    import ray
    from ray import serve

    own = {"cluster_cpus", "environment", "haproxy", "host", "port"}
    arguments = {name: value for name, value in vars(options).items() if name not in own and value is not None}
    is_joined = "RAY_ADDRESS" in os.environ
    started = {} if is_joined else {"num_cpus": options.cluster_cpus, "include_dashboard": False}
    ray.init(log_to_driver=False, **started)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    serve.start(http_options={"host": options.host, "port": options.port})
    serve.run(build(arguments), name="rowwise", route_prefix="/")
    print(f"Rowwise answers on http://{options.host}:{options.port} (store: {options.store})", flush=True)
    stopped.wait()
    serve.shutdown()
    if not is_joined:
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
