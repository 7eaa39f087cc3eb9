"""The tables of a queue, for every database."""

from typing import Final

SCHEMA: Final = 2
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS codecfleet_facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS codecfleet_jobs (
    number {identity},
    job_id TEXT NOT NULL UNIQUE,
    command TEXT NOT NULL,
    tenant TEXT NOT NULL,
    priority INTEGER NOT NULL,
    due_s DOUBLE PRECISION,
    state TEXT NOT NULL,
    submitted_s DOUBLE PRECISION NOT NULL,
    attempt INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    driver TEXT NOT NULL,
    lease_ends_s DOUBLE PRECISION NOT NULL,
    waits_until_s DOUBLE PRECISION NOT NULL,
    began_s DOUBLE PRECISION,
    ended_s DOUBLE PRECISION,
    is_cancelling INTEGER NOT NULL,
    exit_code INTEGER,
    error TEXT NOT NULL,
    message TEXT NOT NULL,
    next_step TEXT NOT NULL,
    core_s DOUBLE PRECISION NOT NULL,
    gpu_s DOUBLE PRECISION NOT NULL,
    written_bytes BIGINT NOT NULL,
    cost DOUBLE PRECISION NOT NULL
);
CREATE INDEX IF NOT EXISTS codecfleet_order ON codecfleet_jobs (state, priority DESC, due_s, number);
CREATE TABLE IF NOT EXISTS codecfleet_runs (
    job_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    began_s DOUBLE PRECISION NOT NULL,
    ended_s DOUBLE PRECISION NOT NULL,
    core_s DOUBLE PRECISION NOT NULL,
    gpu_s DOUBLE PRECISION NOT NULL,
    written_bytes BIGINT NOT NULL,
    cost DOUBLE PRECISION NOT NULL
);
CREATE INDEX IF NOT EXISTS codecfleet_ends ON codecfleet_runs (ended_s);
CREATE TABLE IF NOT EXISTS codecfleet_tokens (
    sha256 TEXT PRIMARY KEY, tenant TEXT NOT NULL, made_s DOUBLE PRECISION NOT NULL, revoked_s DOUBLE PRECISION
);
CREATE TABLE IF NOT EXISTS codecfleet_output (
    job_id TEXT NOT NULL, starts BIGINT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (job_id, starts)
);
"""


def tables(identity: str) -> list[str]:
    """Return the statements that create the tables; ``identity`` is the type of a column that counts rows."""
    return [each for each in _TABLES.format(identity=identity).split(";") if each.strip()]
