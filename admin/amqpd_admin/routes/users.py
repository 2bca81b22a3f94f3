"""Users: lists, one, made, changed, deleted. For administrators."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from fastapi import Request
from starlette.responses import Response

from amqpd.management.metadata import permissions, users
from amqpd.management.metadata.interface import found_user
from amqpd.management.pacing import each
from amqpd.security.rabbitmq_hashes import exported_hash, stored_hash
from amqpd.vocabulary.records import UserRecord
from amqpd_admin import lists
from amqpd_admin.answers import bad_request, changed, gone
from amqpd_admin.bodies import Body, body_of, need, text
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import Listing, Row, of_made
from amqpd_admin.login import Administrator
from amqpd_admin.paths import Name
from amqpd_admin.trail import named

router = api_router("users")


def _row(record: UserRecord) -> Row:
    """The hash is said as definitions say it: an import elsewhere needs it."""
    algorithm, password_hash = exported_hash(record.password_hash)
    said = {"hashing_algorithm": algorithm, "password_hash": password_hash}
    return {"name": record.name, "tags": list(record.tags), "limits": dict(record.limits), **said}


@router.get("/users")
async def list_all(request: Request, who: Administrator) -> Response:
    """All of them."""
    found = list(who.parts.on.node.topology.users.values())
    return await lists.answer(request, Listing(found, lambda user: {"name": user.name}, _row))


@router.get("/users/without-permissions")
async def list_without_permissions(request: Request, who: Administrator) -> Response:
    """Those that may enter no virtual host."""
    topology = who.parts.on.node.topology
    entering = set(await each(list(topology.permissions), itemgetter(1)))
    found = (None if user.name in entering else user for user in list(topology.users.values()))
    return await lists.answer(request, Listing(found, lambda user: {"name": user.name}, _row))


@router.post("/users/bulk-delete", status_code=204)
async def delete_many(request: Request, who: Administrator) -> Response:
    """`users`: their names. Those that are not there are passed over, as in RabbitMQ."""
    body = await body_of(request)
    need(body, "users")
    names = body["users"]
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise bad_request("users must be a list of names")
    named(request, users=names)
    for name in names:
        if name in who.parts.on.node.topology.users:
            await users.delete(who.parts.metadata, name)
    return gone()


@router.get("/users/{name}")
async def show(request: Request, name: Name, who: Administrator) -> Response:
    """One user."""
    record = found_user(who.parts.on.node.topology, name)
    return await lists.one(request, _row(record))


@router.put("/users/{name}", status_code=201)
async def put(request: Request, name: Name, who: Administrator) -> Response:
    """`tags`, with `password`, or `password_hash` and `hashing_algorithm`; with neither, or an empty hash, it logs in
    with a certificate only. `hashing_algorithm` beside a `password`: RabbitMQ can check the hash in an export."""
    body = await body_of(request)
    if "password" in body and "password_hash" in body:
        raise bad_request("both_password_and_password_hash_are_provided")
    password, tags = _password(body), _tags(body)
    algorithm = text(body, "hashing_algorithm") if "hashing_algorithm" in body else None
    stored, metadata = _stored(body), who.parts.metadata
    return changed(await users.put(metadata, name, tags, password=password, algorithm=algorithm, stored=stored))


@router.delete("/users/{name}", status_code=204)
async def delete(name: Name, who: Administrator) -> Response:
    """With its permissions."""
    await users.delete(who.parts.metadata, name)
    return gone()


@router.get("/users/{name}/permissions")
async def list_permissions(request: Request, name: Name, who: Administrator) -> Response:
    """In all virtual hosts."""
    found: list[Any] = await permissions.listed(who.parts.metadata, user=name)
    return await lists.answer(request, of_made(found))


@router.get("/users/{name}/topic-permissions")
async def list_topic_permissions(request: Request, name: Name, who: Administrator) -> Response:
    """In all virtual hosts."""
    found: list[Any] = await permissions.listed_topics(who.parts.metadata, user=name)
    return await lists.answer(request, of_made(found))


def _tags(body: Body) -> list[str]:
    """A list, or one text with commas."""
    given = body.get("tags")
    if given is None:
        raise bad_request("tags_not_present")
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise bad_request("tags must be names")
    return [each.strip() for each in names if each.strip()]


def _password(body: Body) -> bytes | None:
    given = body.get("password")
    if given is None or given == "":
        return None
    if not isinstance(given, str):
        raise bad_request("password must be a text")
    return given.encode("utf-8", "surrogatepass")


def _stored(body: Body) -> str | None:
    if "password_hash" not in body:
        return None
    try:
        algorithm = text(body, "hashing_algorithm") if "hashing_algorithm" in body else None
        return stored_hash(algorithm, text(body, "password_hash"))
    except ValueError as error:
        raise bad_request(str(error)) from None
