"""A web service that transcodes: submit a job, watch it as it runs, cancel it.

    pip install fastapi uvicorn
    MEDIA=/films uvicorn --factory --app-dir examples/service app:create_app

    curl -s localhost:8000/jobs --json '{"source": "film.mkv", "output": "film.mp4", "codec": "hevc"}'
    curl -N localhost:8000/jobs/0a1b2c3d/events
    curl -X DELETE localhost:8000/jobs/0a1b2c3d

One fleet serves all requests, so workers are already up. File names are relative to the folder ``MEDIA``.
"""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field, ValidationError

from codecfleet import Cancelled, CodecfleetError, Fleet, Job, Progress, Report, TranscodeSpec

JOBS_MAX = 1000
"""How many jobs are remembered; the oldest that have ended are forgotten first."""


class JobRequest(BaseModel):
    """A client's request; TranscodeSpec has many more options."""

    source: str
    output: str
    codec: str | None = None
    quality: int | None = None
    preset: int = 4
    height: int | None = Field(default=None, gt=0, description="The picture's height; its width follows.")
    overwrite: bool = False

    def spec(self, media: Path) -> TranscodeSpec:
        """Return the request for codecfleet.

        Raises:
            HTTPException: 422 if the request is invalid, or if a name leads out of the folder.
        """
        options = self.model_dump(include={"codec", "quality", "preset", "overwrite"}, exclude_none=True)
        if self.height is not None:
            options["scale"] = (None, self.height)
        names = {"source": _inside(media, self.source), "output": _inside(media, self.output)}
        try:
            return TranscodeSpec.model_validate(names | options)
        except ValidationError as error:
            raise HTTPException(422, "; ".join(each["msg"] for each in error.errors())) from None


def _inside(media: Path, name: str) -> str:
    path = (media / name).resolve()
    if "\0" in name or not path.is_relative_to(media):
        raise HTTPException(422, f"{name} is not in the media folder")
    return str(path)


class Service:
    """The jobs of one fleet, by their names."""

    def __init__(self, fleet: Fleet, media: Path) -> None:
        self._fleet = fleet
        self._media = media
        self._jobs: dict[str, Job] = {}

    async def submit(self, asked: JobRequest) -> JSONResponse:
        """Begin a job: 202, with its name and the address of its events."""
        self._forget()
        job = await self._fleet.transcode(asked.spec(self._media))
        self._jobs[job.id] = job
        headers = {"Location": f"/jobs/{job.id}"}
        return JSONResponse({"job": job.id, "events": f"/jobs/{job.id}/events"}, 202, headers)

    async def jobs(self) -> list[dict[str, Any]]:
        """Return all remembered jobs."""
        return [await _state(job) for job in self._jobs.values()]

    async def job(self, name: str) -> dict[str, Any]:
        """Return a job's state, and its report once it is done."""
        return await _state(self._named(name))

    async def events(self, name: str, last_event_id: Annotated[int, Header()] = 0) -> StreamingResponse:
        """Stream the job's events, starting with the first, or after the last one that the client received."""
        return StreamingResponse(_stream(self._named(name), last_event_id), media_type="text/event-stream")

    async def cancel(self, name: str) -> dict[str, Any]:
        """Cancel a job and remove its files. A finished job stays as it is."""
        job = self._named(name)
        if not job.done:
            await job.cancel()
        return await _state(job)

    def _named(self, name: str) -> Job:
        if name not in self._jobs:
            raise HTTPException(404, f"there is no job {name}")
        return self._jobs[name]

    def _forget(self) -> None:
        over = [name for name, job in self._jobs.items() if job.done]
        for name in over[: max(0, len(self._jobs) - JOBS_MAX + 1)]:
            del self._jobs[name]
        if len(self._jobs) >= JOBS_MAX:
            raise HTTPException(503, f"{JOBS_MAX} jobs are waiting or running")


async def _state(job: Job) -> dict[str, Any]:
    """Return a job's state: running, done, failed or cancelled."""
    state: dict[str, Any] = {"job": job.id, "source": job.spec.source, "output": job.spec.output}
    if not job.done:
        return state | {"state": "running"}
    try:
        report: Report = await job
    except Cancelled:
        return state | {"state": "cancelled"}
    except CodecfleetError as error:
        return state | {"state": "failed", "error": error.message, "next_step": error.next_step}
    return state | {"state": "done", "report": report.model_dump(mode="json")}


async def _stream(job: Job, after: int) -> AsyncIterator[str]:
    """Yield server-sent events, numbered from 1; the last one is the job's end.

    Progress has no number: a client that reconnects gets only newer progress.
    """
    number = 0
    async for event in job.events():
        is_progress = isinstance(event, Progress)
        number += not is_progress
        if is_progress or number > after:
            yield _sent(None if is_progress else number, event.kind, event.to_json())
    yield _sent(number + 1, "end", await _state(job))


def _sent(number: int | None, kind: str, content: dict[str, Any]) -> str:
    head = "" if number is None else f"id: {number}\n"
    return f"{head}event: {kind}\ndata: {json.dumps(content)}\n\n"


async def _one_line(_request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 422)


def create_app(fleet: Fleet | None = None, media: Path | None = None) -> FastAPI:
    """Return the app, with a fleet on this machine, or on the cluster that ``RAY_ADDRESS`` names."""
    fleet = fleet or Fleet()
    service = Service(fleet, (media or Path(os.environ.get("MEDIA", "."))).resolve())

    @asynccontextmanager
    async def open_fleet(_app: FastAPI) -> AsyncIterator[None]:
        async with fleet:  # at the end, running jobs are cancelled and leave no files
            yield

    app = FastAPI(title="codecfleet", lifespan=open_fleet)
    app.add_exception_handler(CodecfleetError, _one_line)
    app.add_api_route("/jobs", service.submit, methods=["POST"], status_code=202)
    app.add_api_route("/jobs", service.jobs)
    app.add_api_route("/jobs/{name}", service.job)
    app.add_api_route("/jobs/{name}/events", service.events)
    app.add_api_route("/jobs/{name}", service.cancel, methods=["DELETE"])
    return app
