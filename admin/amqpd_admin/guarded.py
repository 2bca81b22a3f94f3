"""Routers of the API: whose routes ask who it is that asks.

What comes in: what a router is about. What goes out: a router under /api.
Rules: routes belong to the application as they are made, and are not included from one router in another: FastAPI
would make each of them again, in the midst of the first requests: no message moves meanwhile
(docs/decisions/http-api.md).
Not here: routes that need no log-in, or say it themselves (`routes/session.py`, `routes/metrics.py`).
"""

from __future__ import annotations

from fastapi import APIRouter, Depends

from amqpd_admin.login import log_in

API = "/api"


def api_router(tag: str, prefix: str = "") -> APIRouter:
    """`prefix`: of all its paths, behind /api."""
    return APIRouter(prefix=API + prefix, tags=[tag], dependencies=[Depends(log_in)])
