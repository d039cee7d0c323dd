"""Write Grafana's dashboard from a list of panels: one is a line or two there, and forty in Grafana's own form.

    python -m scripts.dashboard        writes deploy/grafana/dashboards/rowwise.json

Grafana reads the file when it starts; tests compare it with what is made here, and each query with what is exported.
"""
