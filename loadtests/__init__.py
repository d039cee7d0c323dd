"""Load tests: locust scenarios, the looped baseline, a driver that keeps up with the server, reports with plots.

::

    workload     a model's real examples as request bytes, with the answer that each must get
    driver       closed-loop load from one core; checks every answer
    responder    answers the same bytes to everything: what the driver itself can do
    baseline     the same models served by hand: FastAPI, one tf.function call for each request
    contenders   starts and pins the servers that are compared
    ceiling      how much of what a model itself can do reaches callers
    compare      `make load`: all of it in one run, interleaved
    report       a comparison's table and picture
    soak         `make soak`: nothing may grow, judged by growth
    chaos        `make chaos`: faults, and an account of every request in a ledger
    large_tensors what tensors of a megabyte cost by form of request, and how many copies of them there are
    small_models what both register: functions that are checked without TensorFlow
    workers      what HTTP workers cost, without a model
    demo         `make demo`
    keepalive    connections of all drivers
    ports        a free one, for who must be told which
    runs         `rowwise loadtest`
    locustfile   scenarios for locust, against any running server
"""

__all__: list[str] = []
