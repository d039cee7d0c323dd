"""``make attack``: what a stranger could try, tried on the real server; each attempt is refused or contained."""
