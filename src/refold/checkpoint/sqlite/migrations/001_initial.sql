-- Format 1: the first schema.

-- Facts about the database (format, the encrypted hash key), and what is remembered of deleted threads.
CREATE TABLE refold_meta (
    key TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

-- Where chains of checkpoints live: one row per (thread, namespace). `wide` spaces keep ids as text.
CREATE TABLE refold_space (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    thread TEXT NOT NULL,
    ns TEXT NOT NULL,
    wide INTEGER NOT NULL DEFAULT 0,
    UNIQUE (thread, ns)
);

-- state: 0 listed, 1 hidden (kept for a delta channel of a listed one), 2 awaited (its writes came first).
CREATE TABLE refold_checkpoint (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    space INTEGER NOT NULL,
    id BLOB NOT NULL,
    state INTEGER NOT NULL,
    parent INTEGER,
    run INTEGER,
    template INTEGER,
    data BLOB
);
CREATE UNIQUE INDEX refold_checkpoint_by_id ON refold_checkpoint (space, id);

-- Runs by name (a keyed hash when the database is encrypted), for delete_for_runs.
CREATE TABLE refold_run (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name BLOB NOT NULL,
    space INTEGER NOT NULL,
    UNIQUE (name, space)
);

-- Pending writes: one row per task of a checkpoint.
CREATE TABLE refold_task_write (
    checkpoint INTEGER NOT NULL,
    task BLOB NOT NULL,
    template INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (checkpoint, task)
) WITHOUT ROWID;

-- Every value once, by hash. `base` is the blob that this one is compressed against, or the pack that holds it.
CREATE TABLE refold_blob (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    hash BLOB NOT NULL,
    codec INTEGER NOT NULL,
    base INTEGER,
    data BLOB
);
CREATE UNIQUE INDEX refold_blob_by_hash ON refold_blob (hash);

CREATE TABLE refold_pack (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    codec INTEGER NOT NULL,
    data BLOB NOT NULL
);

-- Lists: a log is a run of elements; a child shares the first `prefix` elements of its parent.
CREATE TABLE refold_log (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    parent INTEGER,
    prefix INTEGER NOT NULL,
    depth INTEGER NOT NULL
);
CREATE TABLE refold_segment (
    log INTEGER NOT NULL,
    start INTEGER NOT NULL,
    codec INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (log, start)
) WITHOUT ROWID;

-- Blobs that a collection found unreachable and has not removed yet; a writer that needs one takes it off the list.
CREATE TABLE refold_doomed (
    blob INTEGER PRIMARY KEY
);
