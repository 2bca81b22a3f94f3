"""The OpenAPI document: what FastAPI makes of the routes, made true to what is answered.

What comes in: the application. What goes out: the document.
Rules: 1. A refusal has one form wherever it comes from (`answers.py`): FastAPI's own, 422, is answered with 400. 2.
Every route may be refused: log-in, permissions, what is not there, what is not of its form, and a node that ends.
Not here: the routes.

Source: https://spec.openapis.org/oas/v3.1.0.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from amqpd_admin.document_bodies import BODIES

REFUSAL = {
    "type": "object",
    "required": ["error", "reason"],
    "properties": {
        "error": {"type": "string"},
        "reason": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    },
}
REFUSALS = {
    "400": "what is asked is not of its form, or does not fit what is there",
    "401": "nobody has logged in, or it is not allowed",
    "403": "a change on behalf of another site",
    "404": "it is not there",
    "405": "no such method",
    "421": "asked under a name that the broker does not have",
    "503": "not now: try again",
}
UNWELL = {
    "description": "it is not well",
    "content": {
        "application/json": {
            "schema": {"type": "object", "required": ["status"], "properties": {"status": {"const": "failed"}}}
        }
    },
}
SCHEME = "password"


def document_of(app: FastAPI) -> dict[str, Any]:
    """It takes some tenths of a second."""
    found = app.openapi()
    refusals = {
        status: {
            "description": says,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
        }
        for status, says in REFUSALS.items()
    }
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            responses.pop("422", None)
            if method == "put" and "201" in responses:
                responses["201"].pop("content", None)
                responses["204"] = {"description": "it was there, and is as asked now"}
            if "/health/checks/" in path:
                responses["503"] = UNWELL
            if (body := BODIES.get((method, path.removeprefix("/api")))) is not None:
                operation["requestBody"] = {"content": {"application/json": {"schema": body}}}
            for status, refusal in refusals.items():
                responses.setdefault(status, refusal)
    components = found.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Refusal"] = REFUSAL
    components["securitySchemes"] = {SCHEME: {"type": "http", "scheme": "basic"}}
    found["security"] = [{SCHEME: []}]
    return found
