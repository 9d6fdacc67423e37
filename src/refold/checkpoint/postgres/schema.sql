-- The whole schema of format 1, as a new database gets it. `migrations/` leads to the same schema from older ones,
-- which a test checks. docs/format.md describes the columns. Data is compressed already: EXTERNAL keeps Postgres from
-- trying again. Columns are in the order that needs least padding.

-- Facts about the database (format, the encrypted hash key), and what is remembered of deleted threads.
CREATE TABLE refold_meta (
    key text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL
);

-- Where chains of checkpoints live: one row per (thread, namespace). `wide` spaces keep ids as text.
CREATE TABLE refold_space (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    wide integer NOT NULL DEFAULT 0,
    thread text COLLATE "C" NOT NULL,
    ns text COLLATE "C" NOT NULL,
    UNIQUE (thread, ns)
);

-- state: 0 listed, 1 hidden (kept for a delta channel of a listed one), 2 awaited (its writes came first).
CREATE TABLE refold_checkpoint (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    parent bigint,
    template bigint,
    run bigint,
    space integer NOT NULL,
    state smallint NOT NULL,
    id bytea NOT NULL,
    data bytea
);
ALTER TABLE refold_checkpoint ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX refold_checkpoint_by_id ON refold_checkpoint (space, id);

-- Runs by name (a keyed hash when the database is encrypted), for delete_for_runs.
CREATE TABLE refold_run (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    space bigint NOT NULL,
    name bytea NOT NULL,
    UNIQUE (name, space)
);

-- Pending writes: one row per task of a checkpoint.
CREATE TABLE refold_task_write (
    checkpoint bigint NOT NULL,
    template bigint NOT NULL,
    task bytea NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (checkpoint, task)
);
ALTER TABLE refold_task_write ALTER COLUMN data SET STORAGE EXTERNAL;

-- Every value once, by hash. `base` is the blob that this one is compressed against, or the pack that holds it.
CREATE TABLE refold_blob (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    base bigint,
    codec smallint NOT NULL,
    hash bytea NOT NULL,
    data bytea
);
ALTER TABLE refold_blob ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX refold_blob_by_hash ON refold_blob (hash);

CREATE TABLE refold_pack (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    codec smallint NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE refold_pack ALTER COLUMN data SET STORAGE EXTERNAL;

-- Lists: a log is a run of elements; a child shares the first `prefix` elements of its parent.
CREATE TABLE refold_log (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    parent bigint,
    prefix bigint NOT NULL,
    depth integer NOT NULL
);
CREATE TABLE refold_segment (
    log bigint NOT NULL,
    start bigint NOT NULL,
    codec smallint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (log, start)
) WITH (fillfactor = 60);
ALTER TABLE refold_segment ALTER COLUMN data SET STORAGE EXTERNAL;

-- Blobs that a collection found unreachable and has not removed yet; a writer that needs one takes it off the list.
CREATE TABLE refold_doomed (
    blob bigint PRIMARY KEY
);
