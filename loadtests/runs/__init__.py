"""What ``rowwise loadtest`` is made of: how much is asked of a server, by whom, and what is told of it.

::

    load           how much, how long, at what times: closed or open loop
    arrivals       when the requests of an open loop are due
    questions      one model's requests as bytes, and whether an answer is right
    inputs         examples from a file, or made from a model's signature
    asking         turns a served model and examples into questions
    observations   what became of each request, in columns
    figures        rates, quantiles, errors and curves of observations
    generator      one process of the fast driver: epoll, closed and open loop
    locust_users   the same load by locust's users
    worker         the process that one of both runs in
    crew           starts workers, watches them, puts together what they saw
    choice         which of both drives, and why
    search         how a ramp looks for the capacity at a p99 target
    ramp           carries a search out
    versus         two servers in turn
    verdict        which targets were missed
    document       the report as JSON
    charts         its pictures as SVG
    page           the report as one HTML file
    views          what is shown meanwhile
    limits         what each engine can do at most
    recorder       stands between callers and a server, and keeps their examples
"""

__all__: list[str] = []
