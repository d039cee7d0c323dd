"""One panel of Grafana's dashboard, and the dashboard that they make together, as Grafana reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Panel", "dashboard"]

_SOURCE = {"type": "prometheus", "uid": "prometheus"}
_COLUMNS = 24


@dataclass(frozen=True, kw_only=True)
class Panel:
    """``queries`` are expressions with what their lines are called; ``size`` is width and height, of 24 columns."""

    title: str
    queries: list[tuple[str, str]]
    unit: str
    kind: str = "timeseries"
    about: str = ""
    size: tuple[int, int] = (8, 8)
    defaults: dict[str, Any] = field(default_factory=dict)
    custom: dict[str, Any] = field(default_factory=dict)


def dashboard(rows: Sequence[tuple[str, Sequence[Panel]]]) -> dict[str, Any]:
    """Return the dashboard as Grafana reads it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in rows:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
            }
        )
        y += 1
        x = height = 0
        for panel in row:
            width, own_height = panel.size
            if x + width > _COLUMNS:
                x, y, height = 0, y + height, 0
            panels.append(_shown(panel, number=len(panels) + 1, x=x, y=y))
            x, height = x + width, max(height, own_height)
        y += height
    return {
        "uid": "rowwise",
        "title": "Rowwise",
        "tags": ["rowwise"],
        "schemaVersion": 39,
        "version": 2,
        "editable": False,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,
        "templating": {"list": [_variable("model", "rowwise_versions"), _variable("instance", "rowwise_ready")]},
        "annotations": {"list": []},
        "panels": panels,
    }


def _shown(panel: Panel, *, number: int, x: int, y: int) -> dict[str, Any]:
    width, height = panel.size
    defaults: dict[str, Any] = {"unit": panel.unit, **panel.defaults}
    options: dict[str, Any] = {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    if panel.kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    elif panel.kind == "heatmap":
        options = {
            "calculate": False,
            "yAxis": {"unit": "short"},
            "rowsFrame": {"layout": "le"},
            "color": {"mode": "scheme", "scheme": "Blues", "steps": 64},
            "cellGap": 1,
            "legend": {"show": True},
        }
    else:
        defaults |= {"min": 0, "custom": {"lineWidth": 2, "fillOpacity": 8, "showPoints": "never", **panel.custom}}
    queries = [
        {
            "datasource": _SOURCE,
            "expr": expression,
            "legendFormat": legend,
            "refId": chr(ord("A") + place),
            **({"format": "heatmap"} if panel.kind == "heatmap" else {}),
        }
        for place, (expression, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": width, "h": height},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": queries,
    }


def _variable(name: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {name})"
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "refresh": 2,
        "sort": 1,
        "current": {"text": ["All"], "value": ["$__all"]},
    }
